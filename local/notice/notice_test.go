package notice_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/notice"
)

const secret = "webhook-token"

// A post is one delivery as the receiver saw it.
type post struct {
	header http.Header
	body   []byte
}

func (p post) event() string { return p.header.Get("X-Buildkite-Event") }

// A rig is an engine and a receiver, who answers as answer says.
type rig struct {
	*testing.T
	engine *engine.Engine
	posts  chan post
	url    string
	client *http.Client // nil: the sender's own
}

// A receiver stands where the network would: tests of times run in a bubble of
// synctest, which a connection cannot be part of. It hands the post on and
// answers 200, or never when it is stuck.
type receiver struct {
	posts chan post
	stuck bool
}

func (r receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.posts <- post{header: req.Header, body: body}
	if r.stuck {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
}

// newBubbleRig is for tests in a bubble.
func newBubbleRig(t *testing.T, stuck bool) *rig {
	t.Helper()
	w := newEngineRig(t)
	w.url, w.client = "http://receiver.example", &http.Client{Transport: receiver{w.posts, stuck}}
	return w
}

func newEngineRig(t *testing.T) *rig {
	t.Helper()
	w := &rig{T: t, posts: make(chan post, 100)}
	var err error
	w.engine, err = engine.New(engine.Options{Dir: t.TempDir()})
	w.ok(err)
	t.Cleanup(func() { w.ok(w.engine.Close()) })
	_, err = w.engine.CreatePipeline(engine.Pipeline{Slug: "eval", Configuration: `steps: [{command: "x", key: "x"}]`})
	w.ok(err)
	return w
}

// newRig has a receiver on the network.
func newRig(t *testing.T, answer http.HandlerFunc) *rig {
	t.Helper()
	w := newEngineRig(t)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the sender gave up
		}
		w.posts <- post{header: r.Header, body: body}
		if answer != nil {
			answer(rw, r)
		}
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

func (w *rig) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *rig) start(opts notice.Options) *notice.Sender {
	w.Helper()
	opts.URL, opts.Token, opts.Client = w.url+"/hook", secret, w.client
	opts.BaseURL = "http://kb.example"
	s, err := notice.Start(w.engine, opts)
	w.ok(err)
	w.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx) // may have been closed
	})
	return s
}

// closeNow delivers what there is.
func (w *rig) closeNow(s *notice.Sender) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	w.ok(s.Close(ctx))
}

func (w *rig) build() engine.Build {
	w.Helper()
	b, err := w.engine.CreateBuild("eval", engine.NewBuild{MetaData: map[string]string{"run_id": "r"}, Creator: engine.Person{ID: "u", Name: "Ada"}})
	w.ok(err)
	return b
}

// run has an agent run the only job of a build.
func (w *rig) run() {
	w.Helper()
	a, _, err := w.engine.Register(engine.AgentInfo{Name: "a"})
	w.ok(err)
	w.ok(w.engine.Connect(a.ID))
	order, err := w.engine.Ping(a.ID)
	w.ok(err)
	_, err = w.engine.Accept(a.ID, order.JobID)
	w.ok(err)
	w.ok(w.engine.Start(order.JobID))
	w.ok(w.engine.WriteLog(order.JobID, 0, []byte("out")))
	w.ok(w.engine.FinishJob(order.JobID, engine.Finish{}))
	w.ok(w.engine.Disconnect(a.ID))
}

func (w *rig) received() []post {
	var out []post
	for {
		select {
		case p := <-w.posts:
			out = append(out, p)
		default:
			return out
		}
	}
}

func TestEvents(t *testing.T) {
	w := newRig(t, nil)
	s := w.start(notice.Options{Workers: 1})
	b := w.build()
	w.run()
	w.closeNow(s)
	var events []string
	bodies := map[string]map[string]any{}
	for _, p := range w.received() {
		events = append(events, p.event())
		var body map[string]any
		w.ok(json.Unmarshal(p.body, &body))
		bodies[p.event()] = body
		if body["event"] != p.event() {
			t.Errorf("body of %s has the event %v", p.event(), body["event"])
		}
		if _, err := buildkite.ParseWebHook(p.event(), p.body); err != nil {
			t.Errorf("go-buildkite cannot read %s: %v", p.event(), err)
		}
		if p.header.Get("Content-Type") != "application/json" || p.header.Get("X-Buildkite-Token") != "" || p.header.Get("X-Buildkite-Signature") == "" {
			t.Errorf("headers of %s = %v, want JSON, a signature and no token", p.event(), p.header)
		}
	}
	want := []string{"build.scheduled", "job.scheduled", "agent.connected", "job.started", "build.running", "job.finished", "build.finished", "agent.stopped"}
	if !slices.Equal(events, want) {
		t.Errorf("events = %v, want %v", events, want)
	}
	parsed, err := buildkite.ParseWebHook("build.finished", mustJSON(t, bodies["build.finished"]))
	w.ok(err)
	finished := parsed.(*buildkite.BuildFinishedEvent)
	if *finished.Build.ID != b.ID || *finished.Build.State != "passed" || finished.Build.MetaData["run_id"] != "r" || *finished.Pipeline.Slug != "eval" || *finished.Sender.Name != "Ada" || finished.Build.FinishedAt == nil {
		t.Errorf("build.finished = %+v", finished.Build)
	}
	build := bodies["build.finished"]["build"].(map[string]any)
	if _, ok := build["jobs"]; ok || build["web_url"] != "http://kb.example/gpu-mode/eval/builds/1" || !strings.HasSuffix(build["created_at"].(string), " UTC") {
		t.Errorf("build.finished has the build %v, want it without jobs, with the page's URL and old times", build)
	}
	job := bodies["job.finished"]["job"].(map[string]any)
	if job["id"] != b.Jobs[0].ID || job["state"] != "passed" || job["step_key"] != "x" {
		t.Errorf("job.finished has the job %v", job)
	}
	if agent := bodies["agent.connected"]["agent"].(map[string]any); agent["name"] != "a" || bodies["agent.connected"]["build"] != nil {
		t.Errorf("agent.connected = %v", bodies["agent.connected"])
	}
	if got := s.Stats(); got != (notice.Stats{Sent: len(want)}) {
		t.Errorf("Stats = %+v, want %d sent", got, len(want))
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The signature is what the documentation says it is.
func TestSignature(t *testing.T) {
	w := newRig(t, nil)
	at := time.Unix(1_700_000_000, 0)
	s := w.start(notice.Options{Events: []string{"build.scheduled"}, Now: func() time.Time { return at }})
	w.build()
	w.closeNow(s)
	posts := w.received()
	if len(posts) != 1 {
		t.Fatalf("%d deliveries, want 1", len(posts))
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("1700000000." + string(posts[0].body)))
	want := "timestamp=1700000000,signature=" + hex.EncodeToString(mac.Sum(nil))
	if got := posts[0].header.Get("X-Buildkite-Signature"); got != want {
		t.Errorf("signature = %s, want %s", got, want)
	}
	req := httptest.NewRequest("POST", "/", strings.NewReader(string(posts[0].body)))
	req.Header = posts[0].header
	if _, err := buildkite.ValidatePayload(req, []byte(secret)); err != nil {
		t.Errorf("go-buildkite refuses the signature: %v", err)
	}
}

func TestPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubbleRig(t, false)
		const delay = 700 * time.Millisecond
		s := w.start(notice.Options{
			Events: []string{"build.scheduled", "build.running", "build.finished"},
			Plan: func(event string) notice.Plan {
				return map[string]notice.Plan{
					"build.scheduled": {Delay: delay},
					"build.running":   {Lose: true},
					"build.finished":  {Copies: 2},
				}[event]
			},
		})
		w.build()
		w.run()
		check := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			var events []string
			for _, p := range w.received() {
				events = append(events, p.event())
			}
			if !slices.Equal(events, want) {
				t.Errorf("events %s = %v, want %v", when, events, want)
			}
		}
		check("at once", "build.finished", "build.finished", "build.finished")
		time.Sleep(delay - time.Millisecond)
		check("before the delay is over")
		time.Sleep(time.Millisecond)
		check("at its end", "build.scheduled")
		w.closeNow(s)
		check("afterwards")
		if got := s.Stats(); got != (notice.Stats{Sent: 4, Dropped: 1}) {
			t.Errorf("Stats = %+v, want 4 sent, 1 dropped", got)
		}
	})
}

func TestOneAttempt(t *testing.T) {
	for _, status := range []int{500, 301, 404} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			w := newRig(t, func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Location", "/elsewhere")
				rw.WriteHeader(status)
			})
			s := w.start(notice.Options{Events: []string{"build.scheduled"}})
			w.build()
			w.closeNow(s)
			if got, stats := len(w.received()), s.Stats(); got != 1 || stats != (notice.Stats{Failed: 1}) {
				t.Errorf("%d requests, %+v, want one that failed", got, stats)
			}
		})
	}
}

// The receiver never answers: the backlog fills up, and Close ends in its time.
func TestStuckReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubbleRig(t, true)
		s := w.start(notice.Options{Events: []string{"build.scheduled"}, Workers: 1, Backlog: 2, Timeout: time.Hour})
		w.build()
		<-w.posts // the worker is busy
		for range 5 {
			w.build()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v, want deadline exceeded", err)
		}
		if got := s.Stats(); got != (notice.Stats{Failed: 1, Dropped: 5}) {
			t.Errorf("Stats = %+v, want 1 failed, 3 over the backlog and 2 too late", got)
		}
		w.build()
		w.ok(s.Close(context.Background())) // again: nothing happens
		if got := s.Stats(); got.Dropped != 5 {
			t.Errorf("Stats after Close = %+v, want no change", got)
		}
	})
}

// A delivery without an answer ends at its time.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubbleRig(t, true)
		s := w.start(notice.Options{Events: []string{"build.scheduled"}, Timeout: 20 * time.Millisecond})
		w.build()
		time.Sleep(20*time.Millisecond - time.Nanosecond)
		synctest.Wait()
		if got := s.Stats(); got != (notice.Stats{}) {
			t.Errorf("Stats before the timeout = %+v, want none", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := s.Stats(); got != (notice.Stats{Failed: 1}) {
			t.Errorf("Stats = %+v, want 1 failed", got)
		}
		w.closeNow(s)
	})
}

func TestStartRefuses(t *testing.T) {
	w := newRig(t, nil)
	for _, opts := range []notice.Options{
		{Token: "t"}, {URL: "ftp://x", Token: "t"}, {URL: "http://", Token: "t"}, {URL: "http://user:pass@x/%zz", Token: "t"}, {URL: w.url}, {URL: w.url, Token: "t", Workers: -1},
	} {
		s, err := notice.Start(w.engine, opts)
		if err == nil {
			_ = s.Close(context.Background())
		}
		if err == nil || strings.Contains(err.Error(), "pass") {
			t.Errorf("Start(%+v) = %v, want an error without the URL", opts, err)
		}
	}
}
