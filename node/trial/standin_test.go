package trial

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema"
)

// kblocal takes builds from verify, and verify gets their jobs, logs and artifacts.
func TestStandInRunsABuild(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN: starts kblocal and an agent")
	}
	agent := testenv.Agent(t, os.Getenv("PATH"))
	dir := t.TempDir()
	file := filepath.Join(dir, "steps.yml")
	result, err := (&schema.Result{Success: true, RunID: "r1", Outcome: schema.NewOutcome(schema.OutcomePassed, "")}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	judged := filepath.Join(dir, "judged.json")
	if err := os.WriteFile(judged, result, 0o600); err != nil {
		t.Fatal(err)
	}
	steps := "steps:\n  - key: probe\n    command: echo run-$$KERNELBOT_RUN_ID; cp " + judged + " result.json\n    artifact_paths: [result.json]\n    agents: {queue: gpu}\n"
	if err := os.WriteFile(file, []byte(steps), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startStandIn(t.Context(), filepath.Join(testenv.Commands(t), "kblocal"), agent, filepath.Join(dir, "stand-in"), map[string]string{"gpu0-probe": file}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(agent, "start", "--name", "n-gpu0", "--tags", "queue=gpu", "--endpoint", s.url+"v3", "--token", s.agentToken, "--build-path", filepath.Join(dir, "builds"), "--no-color")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.awaitAgents(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	client, err := s.client("gpu0-probe")
	if err != nil {
		t.Fatal(err)
	}
	p, err := payload("")
	if err != nil {
		t.Fatal(err)
	}
	run, err := client.Create(t.Context(), launcher.Submission{Payload: p, GPU: "T4", Queue: "gpu", RunID: "r1"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := awaitBuild(t.Context(), client, run.Build)
	if err != nil || b.State != "passed" || len(b.Jobs) != 1 || b.Jobs[0].StepKey != "probe" || b.Jobs[0].Agent.Name != "n-gpu0" {
		t.Fatalf("got %+v, %v, want a build that passed on n-gpu0", b, err)
	}
	if log, err := client.Log(t.Context(), run.Build, b.Jobs[0].ID); err != nil || !strings.Contains(log, "run-r1") {
		t.Errorf("log: %.300s, %v", log, err)
	}
	if report, err := client.Collect(t.Context(), run); err != nil || report.Result.Outcome.Name != schema.OutcomePassed {
		t.Errorf("result.json: %+v, %v", report, err)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	if err := s.close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A kblocal that does not serve says why.
func TestStandInThatFails(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "kblocal")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho 'kblocal: error: no room' >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := startStandIn(t.Context(), program, "agent", filepath.Join(dir, "stand-in"), nil, func() {})
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("got %v, want kblocal's reason", err)
	}
}
