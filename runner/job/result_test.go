package job

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

func longResult(text string) *schema.Result {
	return &schema.Result{
		Success: true, RunID: "r", Outcome: schema.NewOutcome(schema.OutcomePassed, ""),
		Runs: schema.Runs{{Name: "test", EvalResult: schema.EvalResult{Run: &schema.RunResult{
			Success: true, Passed: true, Stdout: text, Result: schema.Report{{Key: "check", Value: "pass"}},
		}}}},
	}
}

func readResult(t *testing.T, path string) *schema.Result {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := schema.DecodeResult(data)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestThereIsAResultFromTheBeginning(t *testing.T) {
	out := filepath.Join(t.TempDir(), "result.json")
	if err := os.WriteFile(out, []byte("older"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := newResultFile(out, "r")
	if err != nil {
		t.Fatal(err)
	}
	if r := readResult(t, out); r.Outcome.Name != schema.OutcomeRunner || r.RunID != "r" || r.Success {
		t.Errorf("first result %+v", r)
	}
	if err := f.write(longResult("x")); err != nil {
		t.Fatal(err)
	}
	if r := readResult(t, out); r.Outcome.Name != schema.OutcomePassed || r.Runs[0].Run.Stdout != "x" {
		t.Errorf("last result %+v", r)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(out), ".*")); len(left) > 0 {
		t.Errorf("files left: %q", left)
	}
}

func TestResultTakesTheSubmissionsDirectoryAway(t *testing.T) {
	out := filepath.Join(t.TempDir(), "result.json")
	f, err := newResultFile(out, "r")
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(out)
	if err := os.MkdirAll(filepath.Join(out, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.write(longResult("x")); err != nil {
		t.Fatal(err)
	}
	if r := readResult(t, out); r.Outcome.Name != schema.OutcomePassed {
		t.Errorf("%+v", r)
	}
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small file system needs root: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	out := filepath.Join(dir, "result.json")
	f, err := newResultFile(out, "r")
	if err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(filler, io.LimitReader(rand.NewChaCha8([32]byte{}), 2<<20)); err == nil {
		t.Fatal("the disk takes everything")
	}
	filler.Close()
	if err := f.write(longResult(strings.Repeat("long\n", 400_000))); err != nil {
		t.Fatal(err)
	}
	r := readResult(t, out)
	if r.Outcome.Name != schema.OutcomePassed || !r.Runs[0].Run.Passed || r.Runs[0].Run.Stdout != "[left out: the disk is full]" {
		t.Errorf("%+v", r)
	}
	if _, err := newResultFile(filepath.Join(dir, "second.json"), "r"); err == nil {
		t.Error("no room is no error")
	}
}

// What kbrun writes can be read: a result beyond the readers' limit loses its
// traces and texts first.
func TestLongResultCanBeRead(t *testing.T) {
	long := strings.Repeat("x", schema.MaxResult)
	for _, tt := range []struct {
		name, outcome string
		run           schema.EvalResult
	}{
		{"a trace", schema.OutcomePassed, schema.EvalResult{Run: &schema.RunResult{Passed: true}, Profile: &schema.ProfileResult{Trace: long}}},
		{"a report", schema.OutcomeReportTooLong, schema.EvalResult{Run: &schema.RunResult{Passed: true, Result: schema.Report{{Key: "benchmark.0.report", Value: long}}}}},
	} {
		r := &schema.Result{Success: true, RunID: "r", Outcome: schema.NewOutcome(schema.OutcomePassed, ""), Runs: schema.Runs{{Name: "profile.0", EvalResult: tt.run}}}
		data, err := encodeBounded(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := schema.DecodeResult(data)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got.Outcome.Name != tt.outcome || got.RunID != "r" || !got.Success {
			t.Errorf("%s: %+v, want outcome %s", tt.name, got.Outcome, tt.outcome)
		}
	}
}
