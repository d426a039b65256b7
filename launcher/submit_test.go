package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	r, err := c.Submit(testContext(t), s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Result.RunID != r.RunID || r.Result.Outcome.Name != schema.OutcomePassed || r.Build != 1 {
		t.Errorf("Submit: got run %q, outcome %q, build %d", r.Result.RunID, r.Result.Outcome.Name, r.Build)
	}
	want := []Phase{PhaseCreating, PhaseQueued, PhaseRunning, PhaseFetching}
	// The last look sees the evaluation's job over, so it still counts as running.
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
	r, err := c.Submit(testContext(t), s)
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
		"meta_data": map[string]any{"run_id": r.RunID, "queue": "cpu", "gpu": "CPU_BK", "mode": "test", "launcher": c.id},
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
	f := newFake(t)
	f.onCreate = func(b *fakeBuild) { b.finish("passed") }
	s := submission()
	s.Payload.Sources[1].Text = randomHex(90_000)
	if _, err := f.client().Submit(testContext(t), s); err != nil {
		t.Fatal(err)
	}
	env := f.builds[0].env
	if env["KERNELBOT_PAYLOAD"] != "" || env["KERNELBOT_PAYLOAD_CHUNKS"] == "" || env["KERNELBOT_PAYLOAD_SHA256"] == "" {
		t.Error("a payload beyond 96 KiB: want chunks, their count and SHA-256 in env")
	}
	s.Payload.Sources[1].Text = randomHex(1_200_000)
	_, err := f.client().Submit(testContext(t), s)
	if !errors.Is(err, schema.ErrPayloadTooLong) || len(f.builds) != 1 {
		t.Errorf("a payload too long: got %v and %d builds, want ErrPayloadTooLong and no build", err, len(f.builds)-1)
	}
}

// Another job may fail the build: what counts is how the evaluation ended.
func TestFailedBuildWithResultIsAReport(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.onCreate = func(b *fakeBuild) {
		b.finish("failed")
		b.jobs = []map[string]any{scriptJob("job-0", "upload", "bootstrap", "failed"), scriptJob("job-1", "evaluate", "cpu", "passed")}
	}
	if _, err := f.client().Submit(testContext(t), submission()); err != nil {
		t.Errorf("a failed build with our result: got %v, want the result", err)
	}
}

// A submission that kills kbrun and leaves a result.json of its own has no
// verdict.
func TestVerdictOfAKilledJobIsNotBelieved(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.onCreate = func(b *fakeBuild) { b.finish("failed") } // with the evaluation
	_, err := f.client().Submit(testContext(t), submission())
	var none *NoResultError
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "which is not believed") {
		t.Errorf("a verdict from a failed job: got %v, want no result", err)
	}
}

func TestTerminalBuildThatRunsAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.onCreate = func(b *fakeBuild) {
		b.script = func(b *fakeBuild) {
			b.state = "surprising" // unknown to us, so not the end
			if b.looks == 3 {
				b.finish("passed")
			}
		}
	}
	if _, err := f.client().Submit(testContext(t), submission()); err != nil {
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
			_, err := f.client().Submit(testContext(t), submission())
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

func TestResultIsChosenAmongSeveral(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.perPage = 1 // pagination too
	f.onCreate = func(b *fakeBuild) {
		own := b.meta["run_id"]
		b.finish("passed")
		second := strings.Replace(string(result(own)), `"every phase passed"`, `"second attempt"`, 1)
		b.artifacts = []fakeArtifact{
			{job: "job-0", path: "result.json", data: result("sub-foreign")},
			{job: "job-1", path: "result.json", data: []byte(second)},
			{job: "job-superseded", path: "result.json", data: result(own)},
			{job: "job-1", path: "not-result.json", data: result(own)},
		}
	}
	r, err := f.client().Submit(testContext(t), submission())
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Result.Outcome.Text; got != "second attempt" {
		t.Errorf("chosen result: got outcome %q, want the live attempt's", got)
	}
}

func TestGivingUpCancelsTheBuild(t *testing.T) {
	t.Parallel()
	queued := func(b *fakeBuild) { b.state = "scheduled" }
	running := func(b *fakeBuild) {
		b.state, b.jobs = "running", []map[string]any{scriptJob("job-1", "evaluate", "cpu", "running")}
	}
	waiting := func(b *fakeBuild) { // the build runs, its evaluation waits for a machine
		b.state, b.jobs = "running", []map[string]any{scriptJob("job-0", "upload", "bootstrap", "passed"), scriptJob("job-1", "evaluate", "cpu", "scheduled")}
	}
	for _, tt := range []struct {
		name       string
		build      func(*fakeBuild)
		queue, run time.Duration
		want       Phase
	}{
		{"never starts", queued, 300 * time.Millisecond, time.Hour, PhaseQueued},
		{"no machine", waiting, 300 * time.Millisecond, time.Hour, PhaseQueued},
		{"runs on", running, time.Hour, 300 * time.Millisecond, PhaseRunning},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			f.onCreate = tt.build
			s := submission()
			s.QueueTimeout, s.RunTimeout = tt.queue, tt.run
			_, err := f.client().Submit(testContext(t), s)
			var gave *GaveUpError
			if !errors.As(err, &gave) || gave.Phase != tt.want {
				t.Errorf("Submit: got %v, want to give up while %s", err, tt.want)
			}
			if got := f.builds[0].state; got != "canceled" {
				t.Errorf("the build is %s, want canceled", got)
			}
		})
	}
}

func TestContextEndCancelsTheBuild(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	ctx, stop := context.WithCancel(testContext(t))
	f.onCreate = func(b *fakeBuild) { b.script = func(b *fakeBuild) { stop() } }
	_, err := f.client().Submit(ctx, submission())
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "is cancelled") {
		t.Errorf("Submit: got %v, want context.Canceled and that the build is cancelled", err)
	}
	if got := f.builds[0].state; got != "canceled" {
		t.Errorf("the build is %s, want canceled", got)
	}
}

func TestContextEndWhileCreatingCancelsWhatWasMade(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	ctx, stop := context.WithCancel(testContext(t))
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		f.create(nopWriter{}, r)
		stop()
		<-r.Context().Done()
		return true
	}
	_, err := f.client().Submit(ctx, submission())
	if !errors.Is(err, context.Canceled) || len(f.builds) != 1 || f.builds[0].state != "canceled" {
		t.Errorf("Submit: got %v and builds %v, want one, canceled", err, f.builds)
	}
}

type nopWriter struct{}

func (nopWriter) Header() http.Header         { return http.Header{} }
func (nopWriter) Write(p []byte) (int, error) { return len(p), nil }
func (nopWriter) WriteHeader(int)             {}

func TestManyWaitsShareTheirPolls(t *testing.T) {
	t.Parallel()
	const runs = 50
	f := newFake(t)
	f.header = http.Header{}
	for name, v := range map[string]string{"Ratelimit-Remaining": "9000", "Ratelimit-Limit": "10000", "Ratelimit-Reset": "60"} {
		f.header.Set(name, v)
	}
	var created atomic.Int32
	f.onCreate = func(b *fakeBuild) {
		created.Add(1)
		b.state = "running"
		b.jobs = []map[string]any{scriptJob("job-1", "evaluate", "cpu", "running")}
		done := time.Now().Add(1500 * time.Millisecond)
		b.script = func(b *fakeBuild) {
			if b.state == "running" && time.Now().After(done) {
				b.finish("passed")
			}
		}
	}
	c := f.client()
	ctx := testContext(t)
	ids := make(chan string, runs)
	var wg sync.WaitGroup
	for range runs {
		wg.Go(func() {
			r, err := c.Submit(ctx, submission())
			if err != nil {
				t.Error(err)
				return
			}
			ids <- r.Result.RunID
		})
	}
	wg.Wait()
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		seen[id] = true
	}
	if len(seen) != runs || created.Load() != runs {
		t.Errorf("got %d results of %d builds, want %d of each", len(seen), created.Load(), runs)
	}
	n := c.Calls()
	t.Logf("%d submissions of 1.5 s at once: %+v, %.2f requests each", runs, n, float64(n.Total)/runs)
	if fixed := n.Total - n.Polls - n.Lookups; fixed > 3*runs+6 {
		t.Errorf("requests besides polls: got %d, want about 3 each", fixed)
	}
	if n.Polls > 40 {
		t.Errorf("polls: got %d for %d waits of 1.5 s, want them shared", n.Polls, runs)
	}
}

// A build that the listing does not show is asked for by number.
func TestRunMissingFromListingsIsNotLost(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var hidden *fakeBuild
	f.onCreate = func(b *fakeBuild) {
		b.state = "running"
		if hidden == nil {
			hidden = b
			b.script = func(b *fakeBuild) {
				if b.looks == 2 {
					b.finish("passed")
				}
			}
			return
		}
		b.script = func(b *fakeBuild) {
			if hidden.state == "passed" {
				b.finish("passed")
			}
		}
	}
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "launcher") {
			f.mu.Lock()
			defer f.mu.Unlock()
			var open []any
			for _, b := range f.builds {
				if b.look(); b != hidden && b.state == "running" {
					open = append(open, f.show(b, false))
				}
			}
			hidden.looks = 0
			json.NewEncoder(w).Encode(open)
			return true
		}
		return false
	}
	c := f.client()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := c.Submit(testContext(t), submission()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestNoErrorQuotesPayloadOrToken(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		return fail(w, 422, `{"message":"Validation failed","errors":[{"field":"env","code":"too_large"}]}`)
	}
	s := submission()
	_, err := f.client().Submit(testContext(t), s)
	if err == nil || !strings.Contains(err.Error(), "Validation failed; env: too_large") {
		t.Fatalf("Submit: got %v, want the API's words", err)
	}
	encoded, _ := s.Payload.Encode()
	for _, secret := range []string{testToken, encoded, "private text"} {
		if strings.Contains(fmt.Sprintf("%+v", err), secret) {
			t.Errorf("error quotes %.20q…", secret)
		}
	}
}
