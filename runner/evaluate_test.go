package runner

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema"
)

func TestModes(t *testing.T) { modes(t, false) }

// TestSlowModes has all modes.
func TestSlowModes(t *testing.T) {
	testenv.NeedSlow(t)
	modes(t, true)
}

func modes(t *testing.T, all bool) {
	for i, tt := range []struct {
		mode, body, runs, outcome string
	}{
		{schema.ModeBenchmark, "return True", "benchmark", schema.OutcomePassed},
		{schema.ModePrivate, "return True", "test benchmark leaderboard", schema.OutcomePassed},
		{schema.ModeLeaderboard, "return False", "test", schema.OutcomeWrong},
		{schema.ModeLeaderboard, `return mode != "leaderboard"`, "test benchmark leaderboard", schema.OutcomeRecheckFailed},
		{schema.ModeTest, "return True", "test", schema.OutcomePassed},
		{schema.ModeLeaderboard, "return True", "test benchmark leaderboard", schema.OutcomePassed},
		{schema.ModeLeaderboard, `return mode == "test"`, "test benchmark", schema.OutcomeWrong},
	} {
		if i == 4 && !all {
			break
		}
		p := pythonPayload(tt.body)
		p.Mode = tt.mode
		r := evaluatePayload(t, p)
		if got := runNames(r); got != tt.runs || r.Outcome.Name != tt.outcome || !r.Success {
			t.Errorf("mode %s, %s: runs %q, outcome %+v; want %q, %q", tt.mode, tt.body, got, r.Outcome, tt.runs, tt.outcome)
		}
	}
}

func TestRun(t *testing.T) {
	p := pythonPayload("print('hello'); sys.stderr.write('aside'); return True")
	r := evaluatePayload(t, p)
	e := r.Runs.Get("test")
	run := e.Run
	if !run.Success || !run.Passed || run.ExitCode != 0 || run.Stdout != "hello\nhello\n" || run.Stderr != "asideaside" || e.Compilation != nil {
		t.Errorf("run %+v", run)
	}
	if !strings.HasPrefix(run.Command, "python3 eval.py test /") {
		t.Errorf("command %q", run.Command)
	}
	if run.Duration <= 0 || e.End.Sub(e.Start).Seconds() < run.Duration {
		t.Errorf("duration %v in the span %v to %v", run.Duration, e.Start, e.End)
	}
	want := schema.Report{{Key: "test-count", Value: "2"}, {Key: "test.0.spec", Value: "size: 1"}, {Key: "test.0.status", Value: "pass"},
		{Key: "test.1.spec", Value: "size: 2"}, {Key: "test.1.status", Value: "pass"}, {Key: "check", Value: "pass"}}
	if len(run.Result) != len(want) {
		t.Fatalf("report %v, want %v", run.Result, want)
	}
	for i := range want {
		if run.Result[i] != want[i] {
			t.Errorf("report entry %d is %v, want %v", i, run.Result[i], want[i])
		}
	}
	if r.System.CPU == "" || !strings.HasPrefix(r.System.Platform, "Linux-") || r.System.Hostname == "" {
		t.Errorf("system %+v", r.System)
	}
}

func TestRankingByLastRunsOnlyTheLastBenchmark(t *testing.T) {
	for ranking, want := range map[string]string{schema.RankLast: "n: 20", schema.RankGeom: "n: 10"} {
		p := pythonPayload("return True")
		p.Mode, p.RankingBy = schema.ModeBenchmark, ranking
		if got := reported(t, evaluatePayload(t, p), "benchmark", "benchmark.0.spec"); got != want {
			t.Errorf("ranking by %s: first benchmark %q, want %q", ranking, got, want)
		}
	}
}

func TestSeed(t *testing.T) {
	wantOutcome(t, evaluatePayload(t, secret(pythonPayload(`return os.environ["POPCORN_SEED"] == "77"`))), schema.OutcomePassed, "")
	wantOutcome(t, evaluatePayload(t, secret(pythonPayload(`return os.environ["POPCORN_SEED"] == "78"`))), schema.OutcomeWrong, "")
	p := pythonPayload(`raise ValueError(os.environ.get("POPCORN_SEED", "none"))`)
	if got := reported(t, evaluatePayload(t, p), "test", "test.0.error"); got != "none" {
		t.Errorf("POPCORN_SEED without a seed = %q", got)
	}
}

func TestWarmUpRecordsAnExtensionBuild(t *testing.T) {
	code := `
if __name__ == "__main__":
    print("x" * 70000 + "-DTORCH_EXTENSION_" "NAME=k seed", os.environ["POPCORN_SEED"], flush=True)
    sys.exit(3)
`
	p := with(pythonPayload("return True"), code)
	r := evaluatePayload(t, p)
	c := r.Runs.Get("test").Compilation
	wantOutcome(t, r, schema.OutcomePassed, "")
	if c == nil || !c.NvccFound || !c.Success || c.NvccVersion != "" || c.Command != "python3 submission.py" || c.ExitCode != 3 || c.Stdout != "[...] 2 lines omitted" {
		t.Errorf("compilation %+v", c)
	}
}

func TestWrong(t *testing.T) {
	p := pythonPayload(`raise ValueError("mismatch at 3\nsecond line")`)
	if r := evaluatePayload(t, secret(p)); r.Outcome.Text != "test: test.0 failed; more is "+schema.WithheldText || r.Explanation == nil || r.Explanation.Error != "" || r.Explanation.Withheld == "" {
		t.Errorf("with a secret seed: %+v, %+v", r.Outcome, r.Explanation)
	}
	p.Seed = nil
	r := evaluatePayload(t, p)
	wantOutcome(t, r, schema.OutcomeWrong, "test: test.0 failed (size: 1): mismatch at 3")
	if x := r.Explanation; x == nil || x.Error != "mismatch at 3" || x.Withheld != "" || len(x.NotRun) != 0 {
		t.Errorf("explanation %+v", x)
	}
	run := r.Runs.Get("test").Run
	if !run.Success || run.Passed || run.ExitCode != 112 || r.Outcome.ExitStatus() != 0 {
		t.Errorf("run %+v, outcome %+v", run, r.Outcome)
	}
	if _, ok := run.Result.Get("second line"); !ok {
		t.Errorf("report %v lacks the spilled line", run.Result)
	}
}

func TestCrash(t *testing.T) { crash(t, false) }

// TestSlowCrash has all ways to end.
func TestSlowCrash(t *testing.T) {
	testenv.NeedSlow(t)
	crash(t, true)
}

func crash(t *testing.T, all bool) {
	for i, tt := range []struct {
		body          string
		code          int
		outcome, text string
	}{
		{`raise KeyError("x")`, 1, schema.OutcomeException, "test: submission.py:4: KeyError: 'x'"},
		{`import no_such_module`, 1, schema.OutcomeMissingModule, "test: submission.py:4: ModuleNotFoundError: No module named 'no_such_module'"},
		{`sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")`, 1, schema.OutcomeOutOfMemory, "CUDA out of memory"},
		{`os.kill(os.getpid(), 9)`, -9, schema.OutcomeKilled, "test: the tester was killed by signal 9"},
		{`os._exit(114)`, 114, schema.OutcomeExited, "test: the submission ended its own process: the tester ended with status 114"},
		{`os._exit(110)`, 110, schema.OutcomeExited, "(CUDA error)"},
		{`raise MemoryError`, 1, schema.OutcomeOutOfMemory, "test: the tester ended with status 1: submission.py:4: MemoryError"},
		{`exec("1 +", {})`, 1, schema.OutcomeSyntaxError, "test: submission.py:4: SyntaxError: invalid syntax"},
		{`os.kill(os.getpid(), 11)`, -11, schema.OutcomeKilled, "test: the tester was killed by signal 11"},
		{`os._exit(111)`, 111, schema.OutcomeExited, "(no report pipe)"},
		{`os._exit(113)`, 113, schema.OutcomeExited, "(it cannot read the cases)"},
	} {
		if i == 6 && !all {
			break
		}
		r := evaluatePayload(t, pythonPayload(tt.body))
		run := r.Runs.Get("test").Run
		wantOutcome(t, r, tt.outcome, tt.text)
		if run.Success || run.Passed || run.ExitCode != tt.code || r.Outcome.ExitStatus() != 0 || r.Outcome.Phase != "test" {
			t.Errorf("%s: run %+v, outcome %+v, want exit code %d", tt.body, run, r.Outcome, tt.code)
		}
	}
	if r := evaluatePayload(t, secret(pythonPayload(`raise KeyError("x")`))); strings.Contains(r.Outcome.Text, "KeyError") {
		t.Errorf("with a secret seed the tester's words are in the outcome: %q", r.Outcome.Text)
	}
	r := evaluatePayload(t, pythonPayload(`os._exit(0)`))
	if run := r.Runs.Get("test").Run; !run.Success || run.Passed {
		t.Errorf("run %+v after exit 0 without a verdict", run)
	}
	wantOutcome(t, r, schema.OutcomeExited, "with status 0, before it had a verdict")
}

// Some testers say of an answer that is wrong while it is timed only that.
func TestFailureWithoutAVerdict(t *testing.T) {
	p := pythonPayload(`if mode != "leaderboard": return True
report.write("test-count: 1\ntest.0.status: fail\ntest.0.error: off by one\n"); report.flush(); os._exit(0)`)
	p.Mode = schema.ModeLeaderboard
	if r := evaluatePayload(t, secret(p)); r.Outcome.Name != schema.OutcomeRecheckFailed || strings.Contains(r.Outcome.Text, "off by one") || !strings.HasSuffix(r.Outcome.Text, schema.WithheldText) {
		t.Errorf("with a secret seed: %+v", r.Outcome)
	}
	p.Seed = nil
	r := evaluatePayload(t, p)
	wantOutcome(t, r, schema.OutcomeRecheckFailed, "test.0 failed: off by one")
	if run := r.Runs.Get("leaderboard").Run; !run.Success || run.Passed {
		t.Errorf("run %+v", run)
	}
}

// A warm-up that leaves no room is not the machine's fault, and not repeated.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=300m"); err != nil {
		t.Skipf("mounting a small disk: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, 0) })
	job := Job{Environ: append(os.Environ(), "PATH="+testenv.PythonPath(t)), WorkDir: dir}
	fill := "\nif __name__ == '__main__':\n    with open(os.path.expanduser('~/fill'), 'wb', 0) as f:\n        while True: f.write(bytes(1 << 20))\n"
	job.Payload = with(pythonPayload("return True"), fill)
	r := Evaluate(context.Background(), job)
	wantOutcome(t, r, schema.OutcomeOutOfDisk, "test: the submission filled the disk: its files take")
	if r.Outcome.ExitStatus() != 0 || r.Outcome.Phase != "test" {
		t.Errorf("%+v", r.Outcome)
	}
	if err := os.WriteFile(filepath.Join(dir, "of others"), make([]byte, 200<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r = Evaluate(context.Background(), job)
	wantOutcome(t, r, schema.OutcomeDiskFull, "test: writing the ")
	if r.Outcome.ExitStatus() != 75 || r.Outcome.Phase != "test" {
		t.Errorf("%+v", r.Outcome)
	}
}

func TestPassAndThenCrashGoesOn(t *testing.T) {
	p := with(pythonPayload("return True"), "\nimport atexit\nif __name__ != '__main__' and sys.argv[1] == 'test':\n    atexit.register(os._exit, 7)\n")
	p.Mode = schema.ModeLeaderboard
	r := evaluatePayload(t, p)
	if got := runNames(r); got != "test benchmark leaderboard" {
		t.Errorf("runs %q", got)
	}
	wantOutcome(t, r, schema.OutcomeExited, "test: the submission ended its own process: the tester ended with status 7")
}

func TestDeadline(t *testing.T) {
	p := pythonPayload("time.sleep(1000)")
	p.TestTimeout = schema.NoLimit()
	longer(t, func(limit time.Duration) bool {
		r := evaluateJob(t, context.Background(), Job{Payload: p, Deadline: time.Now().Add(limit)})
		wantOutcome(t, r, schema.OutcomeOutOfTime, "the job's time ran out")
		if r.Outcome.ExitStatus() != 0 {
			t.Errorf("exit status %d", r.Outcome.ExitStatus())
		}
		return r.Runs.Get("test") != nil
	})
	p = with(pythonPayload("return True"), "time.sleep(1000)\n")
	longer(t, func(limit time.Duration) bool {
		r := evaluateJob(t, context.Background(), Job{Payload: p, Deadline: time.Now().Add(limit)})
		wantOutcome(t, r, schema.OutcomeOutOfTime, "the job's time ran out")
		return strings.HasPrefix(r.Outcome.Text, "test: ") // it was in the warm-up
	})
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	p := pythonPayload(`time.sleep(1000) if mode == "benchmark" else None
return True`)
	p.Mode = schema.ModeLeaderboard
	r := evaluateJob(t, ctx, Job{Payload: p, Progress: func(phase string, result *schema.EvalResult) {
		if phase == "benchmark" && result == nil {
			time.AfterFunc(300*time.Millisecond, cancel)
		}
	}})
	wantOutcome(t, r, schema.OutcomeCanceled, "")
	if runNames(r) != "test" || r.Outcome.ExitStatus() != 75 || r.Success {
		t.Errorf("runs %q, %+v", runNames(r), r.Outcome)
	}
}

func TestRefused(t *testing.T) {
	multi := pythonPayload("return True")
	multi.MultiGPU = true
	none := pythonPayload("return True")
	none.Mode, none.Benchmarks = schema.ModeBenchmark, nil
	noProfile := pythonPayload("return True")
	noProfile.Mode, noProfile.Benchmarks, noProfile.RankingBy = schema.ModeProfile, nil, schema.RankGeom
	profile := pythonPayload("return True")
	profile.Mode = schema.ModeProfile
	for _, tt := range []struct {
		p       *schema.Payload
		outcome string
		status  int
		text    string
	}{
		{none, schema.OutcomeBadPayload, 78, "payload: benchmarks: got none"},
		{noProfile, schema.OutcomeBadPayload, 78, "payload: benchmarks: got none"},
		{profile, schema.OutcomeUnsupported, 78, "profile.0: mode profile needs an NVIDIA or AMD GPU"},
		{multi, schema.OutcomeGPUMissing, 75, "the machine shows none"},
	} {
		r := evaluateJob(t, context.Background(), Job{Payload: tt.p, Devices: device.Machine{Root: t.TempDir()}})
		wantOutcome(t, r, tt.outcome, tt.text)
		if r.Outcome.ExitStatus() != tt.status || r.Error == "" || r.Success {
			t.Errorf("%s: %+v", tt.text, r)
		}
	}
}

func TestNoPython(t *testing.T) {
	r := Evaluate(context.Background(), Job{Payload: pythonPayload("return True"), Environ: []string{"PATH=/nowhere"}, WorkDir: t.TempDir()})
	wantOutcome(t, r, schema.OutcomeMachine, "python3 is not on PATH")
	if r.Outcome.ExitStatus() != 75 || r.Success {
		t.Errorf("%+v", r)
	}
}
