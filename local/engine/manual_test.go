package engine

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// all lists "name=state" of every job but waits.
func all(b Build) string {
	var out []string
	for _, j := range b.Jobs {
		if j.Type != TypeWaiter {
			out = append(out, j.Name(nil)+"="+string(j.State))
		}
	}
	return strings.Join(out, " ")
}

func TestBlock(t *testing.T) {
	w := newRig(t)
	b := w.build(`steps: [{command: a, key: a}, {block: ok, key: ok, blocked_state: failed, fields: [{text: Name, key: name}]}, {command: b, key: b}, {input: who, key: who, fields: [{text: Who, key: who, required: false}]}]`)
	equal(t, "at first", all(w.get(b)), "a=scheduled ok=waiting b=waiting who=blocked")
	equal(t, "ran", w.run(nil), "[a]")
	got := w.get(b)
	equal(t, "blocked", all(got), "a=passed ok=blocked b=waiting who=blocked")
	if !got.Blocked || got.Over() || got.State != BuildPassed && got.State != BuildFailed {
		t.Errorf("the build is %s, blocked %t", got.State, got.Blocked)
	}
	block := got.Jobs[1]
	_, err := w.Unblock(block.ID, nil, Person{})
	wantError(t, err, Invalid, "field name: an answer is required")
	_, err = w.Unblock(block.ID, map[string][]string{"name": {"x"}, "other": {"y"}}, Person{})
	wantError(t, err, Invalid, `field "other": the step has no such field`)
	_, err = w.Unblock(got.Jobs[0].ID, nil, Person{})
	wantError(t, err, BadRequest, "cannot be unblocked")
	j, err := w.Unblock(block.ID, map[string][]string{"name": {"v1"}}, Person{Name: "me"})
	if err != nil || j.State != JobUnblocked || j.Unblocker.Name != "me" {
		t.Fatal(j, err)
	}
	_, err = w.Unblock(block.ID, map[string][]string{"name": {"v1"}}, Person{})
	wantError(t, err, Invalid, "Job is unblocked")
	equal(t, "ran", w.run(nil), "[b]")
	got = w.get(b)
	if !got.Blocked || got.MetaData["name"] != "v1" {
		t.Errorf("with the input open the build is blocked %t, meta-data %v", got.Blocked, got.MetaData)
	}
	if _, err := w.Unblock(got.Jobs[3].ID, nil, Person{}); err != nil {
		t.Fatal(err)
	}
	got = w.get(b)
	if got.State != BuildPassed || got.Blocked || got.FinishedAt.IsZero() {
		t.Errorf("at the end the build is %s, blocked %t, finished %v", got.State, got.Blocked, got.FinishedAt)
	}
}

// A build that waits for a person can be canceled, and its block cannot be
// answered then.
func TestBlockedBuildIsCanceled(t *testing.T) {
	w := newRig(t)
	b := w.build(`steps: [{block: ok}, {command: a, key: a}]`)
	if got := w.get(b); !got.Blocked {
		t.Fatalf("the build is %s, want it blocked", got.State)
	}
	if _, err := w.CancelBuild(b.ID); err != nil {
		t.Fatal(err)
	}
	got := w.get(b)
	if got.State != BuildCanceled || got.Blocked {
		t.Errorf("the build is %s, blocked %t", got.State, got.Blocked)
	}
	_, err := w.Unblock(got.Jobs[0].ID, nil, Person{})
	wantError(t, err, Invalid, "canceled builds")
}

func TestTrigger(t *testing.T) {
	w := newRig(t)
	if _, err := w.CreatePipeline(Pipeline{Slug: "child", Configuration: "steps: [{command: c, key: c}]"}); err != nil {
		t.Fatal(err)
	}
	b := w.build(`steps: [{trigger: child, key: t, build: {branch: side, env: {A: 1}, meta_data: {m: x}}}, {trigger: child, key: async, async: true}, wait, {command: after, key: after}]`)
	got := w.get(b)
	equal(t, "at first", all(got), "t=running async=passed after=waiting")
	child, err := w.Build("child", 1)
	if err != nil {
		t.Fatal(err)
	}
	if child.Branch != "side" || child.Env["A"] != "1" || child.MetaData["m"] != "x" || child.Source != "trigger_job" ||
		child.TriggeredFrom == nil || child.TriggeredFrom.BuildID != b.ID || got.Jobs[0].Triggered.BuildID != child.ID {
		t.Errorf("the triggered build is %+v", child)
	}
	equal(t, "ran", len(w.run(nil)), 3)
	equal(t, "the build", w.get(b).State, BuildPassed)

	b = w.build(`steps: [{trigger: child, key: t}, {trigger: child, key: soft, soft_fail: true}, {command: x, key: x, depends_on: t}]`)
	w.run(map[string]int{"c": 1})
	equal(t, "a failed build", all(w.get(b)), "t=failed soft=failed x=waiting_failed")
	equal(t, "the build", w.get(b).State, BuildFailed)
}

// A pipeline that triggers itself comes to an end.
func TestTriggersEnd(t *testing.T) {
	w := newRig(t)
	if _, err := w.CreatePipeline(Pipeline{Slug: "loop", Configuration: "steps: [{trigger: loop, key: t}]"}); err != nil {
		t.Fatal(err)
	}
	b, err := w.CreateBuild("loop", NewBuild{})
	if err != nil {
		t.Fatal(err)
	}
	got := w.get(b)
	if n := len(w.Builds(BuildFilter{})); got.State != BuildFailed || n != maxTriggers {
		t.Errorf("the build is %s after %d builds, want failed after %d", got.State, n, maxTriggers)
	}
	if _, err := w.CreatePipeline(Pipeline{Slug: "burst", Configuration: "steps: [{trigger: burst, parallelism: 200, async: true}, {trigger: burst, parallelism: 200}]"}); err != nil {
		t.Fatal(err)
	}
	if b, err = w.CreateBuild("burst", NewBuild{}); err != nil {
		t.Fatal(err)
	}
	if n := len(w.Builds(BuildFilter{Pipeline: "burst"})); w.get(b).State != BuildFailed || n > maxFamily+1 {
		t.Errorf("the build is %s after %d builds, want failed after at most %d", w.get(b).State, n, maxFamily+1)
	}
	_, err = w.CreateBuild("loop", NewBuild{Env: map[string]string{"A=B": ""}})
	wantError(t, err, Invalid, `env: got the name "A=B"`)
}

func TestMatrixJobs(t *testing.T) {
	w := newRig(t)
	b := w.build(`steps: [{command: "run {{matrix.a}}", key: m, label: "m {{matrix.a}}", agents: {queue: "q{{matrix.a}}"}, env: {V: "{{matrix.a}}"},
  matrix: {setup: {a: [1, 2]}, adjustments: [{with: {a: 2}, soft_fail: true}, {with: {a: 3}, skip: not now}]}}, {command: after, key: after, depends_on: m}]`)
	got := w.get(b)
	equal(t, "jobs", all(got), "m 1=scheduled m 2=scheduled m 3=skipped after=waiting")
	env, err := w.JobEnv(got.Jobs[1].ID)
	if err != nil || env["V"] != "2" || env["BUILDKITE_COMMAND"] != "run 2" || env["BUILDKITE_LABEL"] != "m 2" {
		t.Errorf("JobEnv = %v, %v", env, err)
	}
	if !maps.Equal(got.Jobs[1].Matrix, map[string]string{"a": "2"}) || got.Jobs[2].BrokenReason != "not now" {
		t.Errorf("jobs %+v", got.Jobs)
	}
	ran := w.run(map[string]int{"m": 0}, "q1", "q2", "default")
	equal(t, "ran", len(ran), 3)
	equal(t, "build", w.get(b).State, BuildPassed)
	for _, q := range w.Queues() {
		if strings.Contains(q.Key, "matrix") {
			t.Errorf("a queue is called %q", q.Key)
		}
	}
}

func TestSelection(t *testing.T) {
	w := newRig(t)
	b := w.buildWith(`steps: [{command: up, key: up}]`, NewBuild{Select: []string{"b", "g"}})
	up := w.take(w.agent())
	err := w.Upload(up, "u", []byte(`{"steps":[{"command":"a","key":"a"},"wait",{"command":"b","key":"b","depends_on":"a"},{"group":"G","key":"g","steps":[{"command":"c","key":"c"}]},{"block":"x","key":"x"}],"notify":["github_check"]}`), false)
	if err != nil {
		t.Fatal(err)
	}
	w.finish(up, 0)
	w.run(nil)
	got := w.get(b)
	equal(t, "jobs", all(got), "up=passed a=skipped b=passed c=passed x=skipped")
	if got.State != BuildPassed || !slices.Equal(got.Notify, []string{`"github_check"`}) {
		t.Errorf("the build is %s and would notify %q", got.State, got.Notify)
	}
	w.buildWith(`steps: [{command: up, key: up}]`, NewBuild{Select: []string{"nope"}})
	up = w.take(w.agent())
	err = w.Upload(up, "u", []byte(`{"steps":[{"command":"a","key":"a"}]}`), false)
	wantError(t, err, Invalid, `no step has the key or label ["nope"], have the keys ["a"]`)
	if j, _ := w.Job(up); j.UploadRefused == "" {
		t.Error("the job does not say that its upload was refused")
	}
}
