package engine

import (
	"slices"
	"testing"

	"github.com/gpu-mode/kbgen/schema/condition"
)

func TestJobEnv(t *testing.T) {
	e, err := New(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.CreatePipeline(Pipeline{Name: "p", Configuration: "steps:\n- command: run\n"}); err != nil {
		t.Fatal(err)
	}
	b, err := e.CreateBuild("p", NewBuild{Env: map[string]string{"A": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	job := b.Jobs[0].ID
	check := func(when, agent string) {
		t.Helper()
		env, err := e.JobEnv(job)
		if err != nil {
			t.Fatal(err)
		}
		if got := env["BUILDKITE_AGENT_NAME"]; env["A"] != "1" || env["BUILDKITE_COMMAND"] != "run" || got != agent {
			t.Errorf("JobEnv %s: A=%q, command %q, agent %q, want 1, run, %q", when, env["A"], env["BUILDKITE_COMMAND"], got, agent)
		}
	}
	check("before an agent has it", "")
	a, _, err := e.Register(AgentInfo{Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Connect(a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Ping(a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Accept(a.ID, job); err != nil {
		t.Fatal(err)
	}
	check("while an agent has it", "w")
	if err := e.FinishJob(job, Finish{}); err != nil {
		t.Fatal(err)
	}
	check("after its end", "w")
	if _, err := e.JobEnv("none"); err == nil {
		t.Error("JobEnv(none) = nil error, want No job found")
	}
}

// schema/condition knows every variable that conditions can read here.
func TestConditionVariables(t *testing.T) {
	e := &Engine{}
	for name := range e.conditionVars(&build{pipeline: &pipeline{}}).Values {
		if !slices.Contains(condition.Variables, name) {
			t.Errorf("condition.Variables lacks %s", name)
		}
	}
}
