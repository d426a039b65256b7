package launcher

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/schema"
)

func TestSubmitFetchesTheResultOfItsOwnRun(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.onCreate = passes
	c := f.client()
	var phases []Phase
	s := submission()
	s.Progress = func(e Event) {
		if len(phases) == 0 || phases[len(phases)-1] != e.Phase {
			phases = append(phases, e.Phase)
		}
	}
	r, err := c.Submit(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Result.RunID != r.RunID || r.Result.Outcome.Name != schema.OutcomePassed || r.Build != 1 {
		t.Errorf("Submit: got run %q, outcome %q, build %d", r.Result.RunID, r.Result.Outcome.Name, r.Build)
	}
	want := []Phase{PhaseCreating, PhaseQueued, PhaseRunning, PhaseFetching}
	// The last probe sees the evaluation's job over, so it still counts as running.
	if diff := cmp.Diff(want, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	l := r.Timeline
	order := []time.Time{l.Submitted, l.Created, l.Running, l.Finished, l.Listed, l.Fetched}
	if !slices.IsSortedFunc(order, time.Time.Compare) || l.Submitted.IsZero() {
		t.Errorf("timeline: got %+v, want every time set and in order", l)
	}
	if diff := cmp.Diff(Calls{Total: 6, Creates: 1, Polls: 3, Artifacts: 1, Downloads: 1}, c.Calls()); diff != "" {
		t.Errorf("REST calls (-want +got):\n%s", diff)
	}
}

func TestCreateSendsExactlyThis(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.onCreate = func(b *fakeBuild) { b.finish("passed") }
	c := f.client()
	s := submission()
	s.ID, s.Branch, s.Commit = "4711", "release", "0123abc"
	r, err := c.Submit(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(r.RunID, "sub-4711-CPU_BK-") {
		t.Errorf("run id: got %q, want sub-4711-CPU_BK-<random>", r.RunID)
	}
	encoded, err := s.Payload.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"commit": "0123abc", "branch": "release", "message": "Kernel eval: " + r.RunID, "author": map[string]any{},
		"env": map[string]any{
			"KERNELBOT_PAYLOAD": encoded, "KERNELBOT_RUN_ID": r.RunID, "KERNELBOT_GPU": "CPU_BK",
			"KERNELBOT_QUEUE": "cpu", "KERNELBOT_MODE": "test",
			"KERNELBOT_TIMEOUT_SECONDS": "300",
		},
		"meta_data": map[string]any{"run_id": r.RunID, "queue": "cpu", "gpu": "CPU_BK", "mode": "test", "ranking": "last", "launcher": c.id},
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(f.bodies[0]), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("create body (-want +got):\n%s", diff)
	}
}

func TestLargePayloadTravelsInChunks(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		f.onCreate = func(b *fakeBuild) { b.finish("passed") }
		s := submission()
		s.Payload.Sources[1].Text = randomHex(90_000)
		if _, err := f.client().Submit(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		env := f.builds[0].env
		if env["KERNELBOT_PAYLOAD"] != "" || env["KERNELBOT_PAYLOAD_CHUNKS"] == "" || env["KERNELBOT_PAYLOAD_SHA256"] == "" {
			t.Error("a payload beyond 96 KiB: want chunks, their count and SHA-256 in env")
		}
		s.Payload.Sources[1].Text = randomHex(1_200_000)
		_, err := f.client().Submit(t.Context(), s)
		if !errors.Is(err, schema.ErrPayloadTooLong) || len(f.builds) != 1 {
			t.Errorf("a payload too long: got %v and %d builds, want ErrPayloadTooLong and no build", err, len(f.builds)-1)
		}
	})
}

// Another job may fail the build: what counts is how the evaluation ended.
func TestFailedBuildWithResultIsAReport(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.onCreate = func(b *fakeBuild) {
		b.finish("failed")
		b.jobs = []map[string]any{scriptJob("job-0", "upload", "bootstrap", "failed"), scriptJob("job-1", "evaluate", "cpu", "passed")}
	}
	if _, err := f.client().Submit(t.Context(), submission()); err != nil {
		t.Errorf("a failed build with our result: got %v, want the result", err)
	}
}

// A submission that kills kbrun and leaves a result.json of its own has no
// verdict.
func TestVerdictOfAKilledJobIsNotBelieved(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.onCreate = func(b *fakeBuild) { b.finish("failed") } // with the evaluation
	_, err := f.client().Submit(t.Context(), submission())
	var none *NoResultError
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "which is not believed") {
		t.Errorf("a verdict from a failed job: got %v, want no result", err)
	}
}

// A pass for another GPU type, or by another queue, is no verdict on this one.
// What a result does not name, older runners did not know.
func TestResultForAnotherMachine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ gpu, queue, want string }{
		{"CPU_BK", "cpu", ""},
		{"cpu_bk", "cpu", ""},
		{"", "", "warned"},
		{"CPU_BK", "", "warned"},
		{"L40S_BK", "cpu", `is for GPU type "L40S_BK" on queue "cpu", want CPU_BK on cpu: a pipeline or an agent serves the wrong queue`},
		{"CPU_BK", "test", `is for GPU type "CPU_BK" on queue "test", want CPU_BK on cpu`},
		{"L40S_BK", "", `is for GPU type "L40S_BK" on queue unknown, want CPU_BK on cpu`},
		{"", "CPU", `is for GPU type unknown on queue "CPU", want CPU_BK on cpu`},
	} {
		for _, unasked := range []bool{false, true} { // found over by its number, or through a listing
			bubble(t, func(t *testing.T, f *fake) {
				f.onCreate = func(b *fakeBuild) {
					end := func(b *fakeBuild) {
						b.finish("passed")
						b.artifacts[0].data = resultFor(b.meta["run_id"], tt.gpu, tt.queue)
					}
					if b.script = end; !unasked {
						end(b)
					}
				}
				c := f.client()
				var log strings.Builder
				c.log = slog.New(slog.NewTextHandler(&log, nil))
				r, err := c.Submit(t.Context(), submission())
				wrong := (*WrongMachineError)(nil)
				if taken := tt.want == "" || tt.want == "warned"; taken != (err == nil) || taken == errors.As(err, &wrong) || taken != (r != nil) {
					t.Errorf("%q, %q: got %v", tt.gpu, tt.queue, err)
				} else if !taken && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "no verdict on the submission (passed: ")) {
					t.Errorf("%q, %q: got %q, want %q in it", tt.gpu, tt.queue, err, tt.want)
				}
				if warned := strings.Contains(log.String(), "does not name GPU type and queue"); warned != (tt.gpu == "" || tt.queue == "") {
					t.Errorf("%q, %q: logged %q", tt.gpu, tt.queue, log.String())
				}
				if n := c.Calls().Downloads; n != 1 {
					t.Errorf("%q, %q: %d downloads, want 1", tt.gpu, tt.queue, n)
				}
			})
		}
	}
}

func TestTerminalBuildThatRunsAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.onCreate = func(b *fakeBuild) {
		b.script = func(b *fakeBuild) {
			b.state = "surprising" // unknown to us, so not the end
			if b.probes == 3 {
				b.finish("passed")
			}
		}
	}
	if _, err := f.client().Submit(t.Context(), submission()); err != nil {
		t.Errorf("an unknown state: got %v, want to wait on", err)
	}
}

func TestBuildsWithoutResult(t *testing.T) {
	t.Parallel()
	status := func(j map[string]any, key string, v any) map[string]any { j[key] = v; return j }
	for _, tt := range []struct {
		name  string
		build func(*fakeBuild)
		want  []string
	}{
		{"failed in bootstrap", func(b *fakeBuild) {
			b.state, b.log = "failed", "\x1b[31mline one\x1b[0m\r\nline two\n\x1b_bk;t=1\x07"
			b.jobs = []map[string]any{status(scriptJob("job-0", "upload", "bootstrap", "failed"), "exit_status", 1)}
		}, []string{"builds/1) is failed", "upload failed, exit status 1", "LOG line one\nline two"}},
		{"payload too large to start a process", func(b *fakeBuild) {
			b.state = "failed"
			b.jobs = []map[string]any{status(status(scriptJob("job-0", "upload", "bootstrap", "failed"), "exit_status", -1), "signal_reason", "process_run_error")}
		}, []string{"exit status -1, signal reason process_run_error"}},
		{"canceled by somebody", func(b *fakeBuild) { b.state = "canceled" }, []string{"is canceled"}},
		{"not_run", func(b *fakeBuild) { b.state = "not_run" }, []string{"is not_run", "every step was skipped"}},
		{"skipped", func(b *fakeBuild) { b.state = "skipped" }, []string{"is skipped", "skip_queued_branch_builds"}},
		{"blocked", func(b *fakeBuild) { b.state, b.blocked = "running", true }, []string{"is blocked", "unblock"}},
		{"foreign and broken results", func(b *fakeBuild) {
			b.finish("passed")
			b.artifacts = []fakeArtifact{
				{job: "job-1", path: "a/result.json", data: result("sub-other")},
				{job: "job-1", path: "b/result.json", data: []byte("{")},
			}
		}, []string{`a/result.json: it is of run "sub-other"`, "b/result.json: result: json"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			f.onCreate = tt.build
			_, err := f.client().Submit(t.Context(), submission())
			var none *NoResultError
			if !errors.As(err, &none) {
				t.Fatalf("Submit: got %v, want a NoResultError", err)
			}
			text := err.Error() + " LOG " + none.Log
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("Submit: got %q, want %q in it", text, want)
				}
			}
			if f.builds[0].state == "running" {
				t.Error("the build was left running, want it cancelled")
			}
		})
	}
}

// Builds are told apart by task and file, but for sealed ones.
func TestNamesOfABuild(t *testing.T) {
	c := &Client{id: "x"}
	s := submission()
	s.Task, s.File = "sort_py", "radix\x1b[2J.py"
	_, body, err := c.prepare(s)
	if err != nil || body.MetaData["task"] != "sort_py" || body.MetaData["file"] == "" || strings.Contains(body.MetaData["file"], "\x1b") {
		t.Errorf("meta-data %q, %v", body.MetaData, err)
	}
	s.Seal = func(_, _ string) (string, error) { return "kbsec1:x", nil }
	if _, body, err = c.prepare(s); err != nil || body.MetaData["task"] != "" || body.MetaData["file"] != "" {
		t.Errorf("a sealed submission tells %q, %v", body.MetaData, err)
	}
}
