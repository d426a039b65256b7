package runner

import (
	"context"
	_ "embed"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

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

func TestPipeHolders(t *testing.T) {
	// A process that outlives the harness, and this test, and holds all three
	// pipes.
	r := evaluatePayload(t, pythonPayload(`subprocess.Popen(["sleep", "1000"], pass_fds=[report.fileno()], start_new_session=True)
return True`))
	wantOutcome(t, r, schema.OutcomePassed, "")
}

// daemon is a submission that leaves a process behind which has cut all ties
// but the report's descriptor, and writes to it when the harness is gone: then
// the last writer of the pipe is.
const daemon = `
if spec != "size: 1":
    return False
fd, (gone, here) = report.fileno(), os.pipe()
os.set_inheritable(fd, True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(here)
        os.read(gone, 1)
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
		p := pythonPayload(body)
		if r := evaluatePayload(t, secret(p)); r.Outcome.Name != schema.OutcomeInconsistent || strings.Contains(r.Outcome.Text, "two values") { // which are the report's
			t.Errorf("%s, with a secret seed: %+v", body, r.Outcome)
		}
		p.Seed = nil
		r := evaluatePayload(t, p)
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
	testenv.NeedSlow(t)
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

func TestWarmUpCannotReachTheHarness(t *testing.T) {
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
