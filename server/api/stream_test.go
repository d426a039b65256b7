package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/popcorn"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/api"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

// events reads a stream's events, each as its name and its data.
func events(t *testing.T, resp *http.Response) <-chan [2]string {
	t.Helper()
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("the stream's answer: %d, %q", resp.StatusCode, kind)
	}
	out := make(chan [2]string, 100)
	go func() {
		defer close(out)
		var e [2]string
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			switch line := lines.Text(); {
			case strings.HasPrefix(line, ":"):
				out <- [2]string{"alive", ""}
			case strings.HasPrefix(line, "event: "):
				e[0] = line[7:]
			case strings.HasPrefix(line, "data: "):
				e[1] = line[6:]
			case line == "" && e[0] != "":
				out <- e
				e = [2]string{}
			}
		}
	}()
	return out
}

func open(t *testing.T, ctx context.Context, r *rig, as, method, path string, body form) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, r.URL+path, strings.NewReader(body.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", body.kind)
	r.sign(req, as)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// A client of the older kind submits and waits on one connection.
func TestStreamEndsWithTheResult(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		type outcome struct {
			result *popcorn.Result
			err    error
		}
		for _, c := range []struct {
			mode    string
			of      func(store.PlannedRun) *schema.Result
			reports []string // a part of each
		}{
			{"leaderboard", nil, []string{"H100 on Buildkite ✅ success\n> ✅ Testing successful\n> ✅ Benchmarking successful\n> ✅ Leaderboard run successful\n", "H100 (secret) on Buildkite ✅ success\n> ✅ Testing successful"}},
			{"test", fails, []string{"H100 on Buildkite ✅ success\n> ❌ Testing failed\n"}},
			{"test", func(store.PlannedRun) *schema.Result { return &schema.Result{Error: "the machine burns"} }, []string{"Buildkite ❌ failure\nthe machine burns"}},
		} {
			over := make(chan outcome, 1)
			go func() {
				result, err := r.client("ann").Stream(context.Background(), "SORT", "H100", c.mode, "a.py", code)
				over <- outcome{result, err}
			}()
			<-r.woken
			servertest.Evaluate(t, r.s, c.of)
			got := <-over
			if got.err != nil || got.result.Statuses < 1 || len(got.result.Reports) != len(c.reports) || len(got.result.Results) != len(c.reports) {
				t.Fatalf("mode %s: %+v, %v, want %d reports after a status", c.mode, got.result, got.err, len(c.reports))
			}
			for i, want := range c.reports {
				if !strings.Contains(got.result.Reports[i], want) {
					t.Errorf("mode %s: report %d is\n%s\nwant in it\n%s", c.mode, i, got.result.Reports[i], want)
				}
			}
		}
	})
}

// The public result is whole; of the secret one there is only whether it passed.
func TestStreamHidesSecretCases(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	over := make(chan *popcorn.Result, 1)
	go func() {
		result, err := r.client("ann").Stream(context.Background(), "sort", "H100", "leaderboard", "a.py", code)
		if err != nil {
			t.Error(err)
		}
		over <- result
	}()
	<-r.woken
	servertest.Evaluate(t, r.s, func(p store.PlannedRun) *schema.Result {
		result := servertest.Result(p.Mode, true, 1000)
		if p.Secret {
			for i := range result.Runs {
				result.Runs[i].Run.Stdout = "canary"
				result.Runs[i].Run.Result = append(result.Runs[i].Run.Result, schema.Entry{Key: "test.0.spec", Value: "canary"})
			}
		}
		return result
	})
	result := <-over
	if result == nil {
		t.FailNow()
	}
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "canary") {
		t.Errorf("the stream shows a secret case: %s", text)
	}
	if !strings.Contains(string(text), "printed by the submission") {
		t.Errorf("the stream lacks what the public run printed: %s", text)
	}
}

// A client that leaves loses nothing: its submission goes on, and another asks for it.
func TestStreamSurvivesItsClient(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	ctx, leave := context.WithCancel(context.Background())
	got := events(t, open(t, ctx, r, "ann", "POST", "/sort/H100/test", upload("a.py", "x = 1\n")))
	if e := <-got; e[0] != "status" {
		t.Fatalf("the first event is %v", e)
	}
	leave()
	for range got { // until the connection is gone
	}
	servertest.Evaluate(t, r.s, nil)
	list, err := r.client("ann").Submissions(context.Background(), "", 0, 0)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if s, err := r.client("ann").Wait(context.Background(), list[0].ID); err != nil || len(s.Runs) != 1 {
		t.Errorf("asked later: %+v, %v", s, err)
	}
}

// While nothing happens a stream says that it is alive; when the server stops, it
// says how to go on.
func TestStreamBeatsAndStops(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), func(o *api.Options) { o.Beat = time.Millisecond })
	got := events(t, open(t, context.Background(), r, "ann", "POST", "/sort/H100/test", upload("a.py", "x = 1\n")))
	for range 3 {
		if e := <-got; e[0] != "status" || !strings.Contains(e[1], `"status":"processing","elapsed_time":`) {
			t.Fatalf("an event while it waits: %v", e)
		}
	}
	watching := events(t, open(t, context.Background(), r, "ann", "GET", "/api/v1/submissions/1/events", form{}))
	for seen := map[string]bool{}; !seen["alive"] || !seen["submission"]; {
		seen[(<-watching)[0]] = true
	}
	close(r.stop)
	for name, c := range map[string]<-chan [2]string{"POST": got, "GET": watching} {
		var last [2]string
		for last = range c {
		}
		if last[0] != "error" || !strings.Contains(last[1], `"status":"error"`) {
			t.Errorf("the last event of %s when the server stops: %v", name, last)
		}
	}
}

func TestSubmissionEvents(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		id := decode[api.Receipt](t, r.ask(t, "ann", "POST", "/api/v1/submissions?board=sort&gpu=H100&mode=test", upload("a.py", "x = 1\n"))).ID
		got := events(t, open(t, context.Background(), r, "ann", "GET", "/api/v1/submissions/1/events", form{}))
		first := <-got
		var s api.Submission
		if err := json.Unmarshal([]byte(first[1]), &s); err != nil || first[0] != "submission" || s.ID != id || s.Done {
			t.Errorf("the first event: %v, %v", first, err)
		}
		servertest.Evaluate(t, r.s, nil)
		var last [2]string
		for last = range got {
		}
		if err := json.Unmarshal([]byte(last[1]), &s); err != nil || last[0] != "done" || !s.Done || s.Status != "succeeded" || len(s.Runs) != 1 {
			t.Errorf("the last event: %v, %v", last, err)
		}
		if again := <-events(t, open(t, context.Background(), r, "ann", "GET", "/api/v1/submissions/1/events", form{})); again[0] != "done" {
			t.Errorf("asked when it is done: %v", again)
		}
		if got := r.ask(t, "bob", "GET", "/api/v1/submissions/1/events", nil); got.status != http.StatusNotFound || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("events of somebody else's test: %d %s", got.status, got.body)
		}
	})
}

// One client holds a number of streams and no more; a place comes free when one ends.
func TestStreamsAreCounted(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	r.ask(t, "ann", "POST", "/submission/sort/H100/test", upload("a.py", "x = 1\n"))
	ctx, leave := context.WithCancel(context.Background())
	for range 16 {
		<-events(t, open(t, ctx, r, "ann", "GET", "/api/v1/submissions/1/events", form{}))
	}
	if got := r.ask(t, "ann", "GET", "/api/v1/submissions/1/events", nil); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("the 17th stream: %d %s, want 429", got.status, got.body)
	}
	var refusal *popcorn.Refusal
	if _, err := r.client("ann").Stream(context.Background(), "sort", "H100", "test", "a.py", code); !errors.As(err, &refusal) || refusal.Status != 429 {
		t.Errorf("the 17th stream, of a submission: %v, want 429", err)
	}
	if stats, err := r.s.Stats(context.Background()); err != nil || stats.Submissions != 1 {
		t.Errorf("%d submissions are kept, %v, want 1", stats.Submissions, err)
	}
	leave()
	servertest.Evaluate(t, r.s, nil)
}
