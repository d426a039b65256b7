package runner

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

//go:embed testdata/eval.py
var tester string

// pythonPayload is a task whose submission is the given body of
// kernel(spec, mode, report).
func pythonPayload(body string) *schema.Payload {
	return &schema.Payload{
		Main: "eval.py",
		Sources: schema.Files{
			{Name: "eval.py", Text: tester},
			{Name: "submission.py", Text: "import os, subprocess, sys, time\n\ndef kernel(spec, mode, report):\n    " + strings.ReplaceAll(strings.TrimSpace(body), "\n", "\n    ") + "\n"},
		},
		Lang: schema.LangPython, Mode: schema.ModeTest, RankingBy: schema.RankLast,
		Tests:       []schema.Case{{{Name: "size", Value: schema.IntValue(1)}}, {{Name: "size", Value: schema.IntValue(2)}}},
		Benchmarks:  []schema.Case{{{Name: "n", Value: schema.IntValue(10)}}, {{Name: "n", Value: schema.IntValue(20)}}},
		TestTimeout: schema.Seconds(30), BenchmarkTimeout: schema.Seconds(30), RankedTimeout: schema.Seconds(30),
	}
}

// secret gives the payload a secret seed.
func secret(p *schema.Payload) *schema.Payload {
	seed := int64(77)
	p.Seed = &seed
	return p
}

// with appends code at the level of the submission's file, which the warm-up
// runs too.
func with(p *schema.Payload, code string) *schema.Payload {
	p.Sources[1].Text += code
	return p
}

func evaluatePayload(t *testing.T, p *schema.Payload) *schema.Result {
	t.Helper()
	return evaluateJob(t, context.Background(), Job{Payload: p})
}

// evaluateJob runs a job and checks what holds for all of them: nothing is
// left behind, and the result can be written.
func evaluateJob(t *testing.T, ctx context.Context, job Job) *schema.Result {
	t.Helper()
	base := slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "PATH=") }) // a program may find the first of two
	job.Environ, job.WorkDir = append(append(base, "PATH="+testenv.PythonPath(t)), job.Environ...), t.TempDir()
	r := Evaluate(ctx, job)
	if left := sandbox.Descendants(os.Getpid()); len(left) > 0 {
		t.Errorf("processes left: %s", fmt.Sprint(left))
	}
	if left, _ := filepath.Glob(filepath.Join(job.WorkDir, "*")); len(left) > 0 {
		t.Errorf("files left: %q", left)
	}
	data, err := r.Encode()
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	if _, err := schema.DecodeResult(data); err != nil {
		t.Fatalf("DecodeResult: %v", err)
	}
	return r
}

func wantOutcome(t *testing.T, r *schema.Result, name, text string) {
	t.Helper()
	if r.Outcome.Name != name || !strings.Contains(r.Outcome.Text, text) {
		t.Errorf("outcome %q: %q, want %q with %q", r.Outcome.Name, r.Outcome.Text, name, text)
	}
}

func reported(t *testing.T, r *schema.Result, phase, key string) string {
	t.Helper()
	e := r.Runs.Get(phase)
	if e == nil {
		t.Fatalf("no run %q, outcome %+v", phase, r.Outcome)
	}
	v, _ := e.Run.Result.Get(key)
	return v
}

func runNames(r *schema.Result) string {
	var names []string
	for _, run := range r.Runs {
		names = append(names, run.Name)
	}
	return strings.Join(names, " ")
}

// longer calls try with a second, and with longer times until it reports that
// this was enough for the machine to come to what is tested.
func longer(t *testing.T, try func(time.Duration) bool) {
	t.Helper()
	for limit := time.Second; limit < 5*time.Minute; limit *= 4 {
		if try(limit) {
			return
		}
	}
	t.Error("no time is long enough")
}
