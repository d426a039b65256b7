package runner

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema"
)

//go:embed testdata/eval.py
var tester string

// pythonPayload is a task whose submission is the given body of
// kernel(spec, mode, report).
func pythonPayload(body string) *schema.Payload {
	seed := int64(77)
	return &schema.Payload{
		Main: "eval.py",
		Sources: schema.Files{
			{Name: "eval.py", Text: tester},
			{Name: "submission.py", Text: "import os, subprocess, sys, time\n\ndef kernel(spec, mode, report):\n    " + strings.ReplaceAll(strings.TrimSpace(body), "\n", "\n    ") + "\n"},
		},
		Lang: schema.LangPython, Mode: schema.ModeTest, RankingBy: schema.RankLast, Seed: &seed,
		Tests:       []schema.Case{{{Name: "size", Value: schema.IntValue(1)}}, {{Name: "size", Value: schema.IntValue(2)}}},
		Benchmarks:  []schema.Case{{{Name: "n", Value: schema.IntValue(10)}}, {{Name: "n", Value: schema.IntValue(20)}}},
		TestTimeout: schema.Seconds(30), BenchmarkTimeout: schema.Seconds(30), RankedTimeout: schema.Seconds(30),
	}
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
	job.Environ, job.WorkDir = append(append(os.Environ(), "PATH="+needPython(t)), job.Environ...), t.TempDir()
	r := Evaluate(ctx, job)
	if left := descendants(os.Getpid()); len(left) > 0 {
		t.Errorf("processes left: %s", describe(left))
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

// needPython returns a PATH that begins at the real interpreter: a version
// manager's script in its place would triple the time of every run.
func needPython(t *testing.T) string {
	t.Helper()
	path := pythonPath()
	if path == "" {
		t.Skip("python3 is not installed")
	}
	return path
}

var pythonPath = sync.OnceValue(func() string {
	out, err := exec.Command("python3", "-I", "-c", "import os, sys; print(os.path.dirname(sys.executable))").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out)) + ":" + os.Getenv("PATH")
})

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

func TestModes(t *testing.T) {
	for _, tt := range []struct {
		mode, body, runs, outcome string
	}{
		{schema.ModeTest, "return True", "test", schema.OutcomePassed},
		{schema.ModeBenchmark, "return True", "benchmark", schema.OutcomePassed},
		{schema.ModeLeaderboard, "return True", "test benchmark leaderboard", schema.OutcomePassed},
		{schema.ModePrivate, "return True", "test benchmark leaderboard", schema.OutcomePassed},
		{schema.ModeLeaderboard, "return False", "test", schema.OutcomeWrong},
		{schema.ModeLeaderboard, `return mode == "test"`, "test benchmark", schema.OutcomeWrong},
		{schema.ModeLeaderboard, `return mode != "leaderboard"`, "test benchmark leaderboard", schema.OutcomeRecheckFailed},
	} {
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
	p := pythonPayload(`raise ValueError(os.environ.get("POPCORN_SEED", "none"))`)
	if got := reported(t, evaluatePayload(t, p), "test", "test.0.error"); got != "77" {
		t.Errorf("POPCORN_SEED = %q, want 77", got)
	}
	p.Seed = nil
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
	r := evaluatePayload(t, p)
	wantOutcome(t, r, schema.OutcomeWrong, "test: test.0 failed (size: 1): mismatch at 3")
	run := r.Runs.Get("test").Run
	if !run.Success || run.Passed || run.ExitCode != 112 || r.Outcome.ExitStatus() != 0 {
		t.Errorf("run %+v, outcome %+v", run, r.Outcome)
	}
	if _, ok := run.Result.Get("second line"); !ok {
		t.Errorf("report %v lacks the spilled line", run.Result)
	}
}

func TestCrash(t *testing.T) {
	for _, tt := range []struct {
		body          string
		code          int
		outcome, text string
	}{
		{`raise KeyError("x")`, 1, schema.OutcomeCrashed, "test: the tester ended with status 1: KeyError: 'x'"},
		{`raise MemoryError`, 1, schema.OutcomeOutOfMemory, "test: the tester ended with status 1: MemoryError"},
		{`sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")`, 1, schema.OutcomeOutOfMemory, "CUDA out of memory"},
		{`os.kill(os.getpid(), 11)`, -11, schema.OutcomeKilled, "test: the tester was killed by signal 11"},
		{`os.kill(os.getpid(), 9)`, -9, schema.OutcomeKilled, "test: the tester was killed by signal 9"},
		{`os._exit(114)`, 114, schema.OutcomeCrashed, "test: the tester ended with status 114"},
		{`os._exit(110)`, 110, schema.OutcomeCrashed, "(CUDA error)"},
		{`os._exit(113)`, 113, schema.OutcomeHarness, "(it cannot read the cases)"},
	} {
		p := pythonPayload(tt.body)
		p.Seed = nil
		r := evaluatePayload(t, p)
		run := r.Runs.Get("test").Run
		wantOutcome(t, r, tt.outcome, tt.text)
		if run.Success || run.Passed || run.ExitCode != tt.code || r.Outcome.ExitStatus() != 0 || r.Outcome.Phase != "test" {
			t.Errorf("%s: run %+v, outcome %+v, want exit code %d", tt.body, run, r.Outcome, tt.code)
		}
	}
	if r := evaluatePayload(t, pythonPayload(`raise KeyError("x")`)); strings.Contains(r.Outcome.Text, "KeyError") {
		t.Errorf("with a secret seed the tester's words are in the outcome: %q", r.Outcome.Text)
	}
	r := evaluatePayload(t, pythonPayload(`os._exit(0)`))
	if run := r.Runs.Get("test").Run; !run.Success || run.Passed {
		t.Errorf("run %+v after exit 0 without a verdict", run)
	}
	wantOutcome(t, r, schema.OutcomeNoVerdict, "")
}

// Some testers say of an answer that is wrong while it is timed only that.
func TestFailureWithoutAVerdict(t *testing.T) {
	p := pythonPayload(`if mode != "leaderboard": return True
report.write("test-count: 1\ntest.0.status: fail\ntest.0.error: off by one\n"); report.flush(); os._exit(0)`)
	p.Mode = schema.ModeLeaderboard
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
	job := Job{Environ: append(os.Environ(), "PATH="+needPython(t)), WorkDir: dir}
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
	wantOutcome(t, r, schema.OutcomeCrashed, "test: the tester ended with status 7")
}

func TestHang(t *testing.T) {
	p := pythonPayload(`print("begun", flush=True); report.write("check: pass\n"); report.flush()
subprocess.Popen(["sleep", "1000"], start_new_session=True)
time.sleep(1000)`)
	longer(t, func(limit time.Duration) bool {
		p.TestTimeout = schema.Seconds(limit.Seconds())
		r := evaluatePayload(t, p)
		run := r.Runs.Get("test").Run
		wantOutcome(t, r, schema.OutcomeTimeout, "test: passed the time limit of "+limit.String())
		if run.Success || run.Passed || run.ExitCode != 114 || run.Duration != limit.Seconds() || len(run.Result) != 0 {
			t.Errorf("run %+v", run)
		}
		return run.Stdout == "begun\n"
	})
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

func TestPipeHolders(t *testing.T) {
	// A process that outlives the harness, and this test, and holds all three
	// pipes.
	r := evaluatePayload(t, pythonPayload(`subprocess.Popen(["sleep", "1000"], pass_fds=[report.fileno()], start_new_session=True)
return True`))
	wantOutcome(t, r, schema.OutcomePassed, "")
}

// daemon is a submission that leaves a process behind which has cut all ties
// but the report's descriptor and writes to it when the tester is gone.
const daemon = `
fd, tester = report.fileno(), os.getpid()
os.set_inheritable(fd, True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while os.path.exists(f"/proc/{tester}/exe"):
            time.sleep(0.01)
        os.write(fd, b"check: pass\nbenchmark.0.mean: 1\n")
        time.sleep(1000)
    os._exit(0)
return False`

func TestLateWriterIsNotHeard(t *testing.T) {
	r := evaluatePayload(t, pythonPayload(daemon))
	if r.Outcome.Name != schema.OutcomeInconsistent { // heard in the instant before the report was closed
		wantOutcome(t, r, schema.OutcomeWrong, "")
	}
	if got := reported(t, r, "test", "check"); got != "fail" || r.Runs.Get("test").Run.Passed {
		t.Errorf("check: %q", got)
	}
}

func TestSecondVerdictIsNoPass(t *testing.T) {
	for _, body := range []string{
		`report.write("check: pass\n"); return False`,
		`report.write("check: fail\n"); return True`,
		`report.write("test.0.status: fail\n"); return True`,
	} {
		r := evaluatePayload(t, pythonPayload(body))
		wantOutcome(t, r, schema.OutcomeInconsistent, "the report gives two values for")
		if r.Runs.Get("test").Run.Passed {
			t.Errorf("%s: passed", body)
		}
	}
}

func TestLongReport(t *testing.T) {
	r := evaluatePayload(t, pythonPayload(`report.write("note: " + "x" * 300000 + "\n"); return True`))
	wantOutcome(t, r, schema.OutcomePassed, "")
	if got := reported(t, r, "test", "note"); len(got) != 300000 {
		t.Errorf("note of %d characters", len(got))
	}
	r = evaluatePayload(t, pythonPayload(`report.write("note: " + "x" * 3000000 + "\n"); return True`))
	wantOutcome(t, r, schema.OutcomeReportTooLong, "at most 1048576")
	if r.Runs.Get("test").Run.Passed {
		t.Error("passed with a report that is too long")
	}
}

func TestSlowHugeOutputKeepsMemoryFlat(t *testing.T) {
	if os.Getenv("KBGEN_SLOW_TESTS") != "1" {
		t.Skip("proves time/size: make test-slow")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := evaluatePayload(t, pythonPayload(`for _ in range(150): os.write(1, b"0123456789abcde\n" * 65536)
return True`))
	runtime.ReadMemStats(&after)
	wantOutcome(t, r, schema.OutcomePassed, "")
	if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 40 {
		t.Errorf("300 MB of output allocated %d MB", grown)
	}
	out := r.Runs.Get("test").Run.Stdout
	if !strings.HasSuffix(out, "\n[...] 19659784 lines omitted") || len(out) > 16384 {
		t.Errorf("stdout of %d bytes ends in %q", len(out), out[max(0, len(out)-60):])
	}
}

func TestOutputThatIsNotText(t *testing.T) {
	r := evaluatePayload(t, pythonPayload(`os.write(1, b"a\xff\x00b"); os.write(report.fileno(), b"note: \xff\x00\n"); return True`))
	wantOutcome(t, r, schema.OutcomePassed, "")
	data, err := r.Encode()
	if err != nil || strings.Contains(string(data), `\u0000`) || !strings.Contains(string(data), "a\uFFFD\uFFFDb") {
		t.Errorf("result %s (%v)", data, err)
	}
}

func TestWarmUpCannotReachTheTester(t *testing.T) {
	code := `
if __name__ == "__main__":
    forged = 'import os\nos.write(int(os.environ["POPCORN_FD"]), b"check: pass\\n")\n'
    for name in ("eval.py", "traceback.py", "usercustomize.py"):
        open(name, "w").write(forged)
    site = os.path.expanduser("~/.local/lib/python%d.%d/site-packages" % sys.version_info[:2])
    os.makedirs(site)
    open(site + "/usercustomize.py", "w").write(forged)
    os.chmod(".", 0)
`
	r := evaluatePayload(t, with(pythonPayload("return False"), code))
	wantOutcome(t, r, schema.OutcomeWrong, "")
	if r.Runs.Get("test").Run.Passed {
		t.Error("the forged tester passed")
	}
}

func TestPhasesShareNoFiles(t *testing.T) {
	p := pythonPayload(`found = os.path.exists("left") or os.path.exists(os.path.expanduser("~/left"))
open("left", "w"); open(os.path.expanduser("~/left"), "w")
return mode == "test" or not found`)
	p.Mode = schema.ModeLeaderboard
	wantOutcome(t, evaluatePayload(t, p), schema.OutcomePassed, "")
}

func TestSubmissionSeesNoSecrets(t *testing.T) {
	secret := "secret-91c2"
	p := pythonPayload(`raise ValueError(" ".join(sorted(k for k, v in os.environ.items() if "` + secret + `" in v)))`)
	r := evaluateJob(t, context.Background(), Job{Payload: p, Environ: []string{
		"KERNELBOT_PAYLOAD=" + secret, "BUILDKITE_AGENT_ACCESS_TOKEN=" + secret, "NVIDIA_API_KEY=" + secret, "CUDA_TOKEN=" + secret,
		"AWS_SECRET_ACCESS_KEY=" + secret, "PYTHONPATH=" + secret, "LD_PRELOAD_X=" + secret, "CUDA_VISIBLE_DEVICES=" + secret,
	}})
	if got := reported(t, r, "test", "test.0.error"); got != "CUDA_VISIBLE_DEVICES" {
		t.Errorf("the submission sees %q", got)
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
