//go:build otel

package trace_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/server/reconciler"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/server/trace"
)

// A receiver keeps the spans that come by OTLP.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*wire.Span
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body := io.Reader(req.Body)
		if req.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				t.Error(err)
			}
		}
		data, err := io.ReadAll(body)
		var export collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(data, &export)
		}
		if err != nil || req.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", req.URL.Path, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, resource := range export.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				r.spans = append(r.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) named(name string) (found []*wire.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

func attr(s *wire.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			if n := a.Value.GetIntValue(); n != 0 {
				return fmt.Sprint(n)
			}
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// A submission's way is there in spans: the request below the client's own span,
// what accepted it below the request, and its run with its parts. Nothing of it is
// its text, a user's name or the words of an error.
func TestSpans(t *testing.T) {
	ctx := context.Background()
	r := newReceiver(t)
	stop, err := trace.Setup(ctx, r.URL, "v1")
	if err != nil {
		t.Fatal(err)
	}
	s := servertest.SQLite(t)
	board := servertest.Board("sort")
	board.GPUs = []string{pipelines.Fleet[0].Name}
	servertest.Save(t, s, board)
	b := backend.New(backend.Options{Store: s, Queue: &servertest.Queue{}})
	site := httptest.NewServer(httpx.Wrap(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		httpx.Note(req.Context(), "POST /submit/{board}", "7")
		_, err := b.Submit(req.Context(), backend.Viewer{ID: "7", Name: "hush-name"}, backend.Request{Board: req.URL.Query().Get("board"), GPU: board.GPUs[0], Mode: schema.ModeTest,
			FileName: "hush-file.py", Code: []byte("hush-code = 1")})
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}), httpx.Options{}))
	defer site.Close()
	for _, path := range []string{"/submit/x?board=sort", "/submit/x?board=hush-board"} {
		req, _ := http.NewRequest("POST", site.URL+path, strings.NewReader("hush-body"))
		req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}

	// The build is cancelled at Buildkite, which ends the run without a result.
	const build = `{"number": 1, "id": "0190", "web_url": "https://buildkite.example/1", "state": "canceled", "jobs": []}`
	buildkite := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.Method == "POST":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, build)
		case strings.HasSuffix(req.URL.Path, "/builds/1"):
			fmt.Fprint(w, build)
		default:
			fmt.Fprint(w, "[]")
		}
	}))
	defer buildkite.Close()
	client, err := launcher.New(launcher.Options{BaseURL: buildkite.URL, Token: "hush-token", Org: "o", Pipeline: "p"})
	if err != nil {
		t.Fatal(err)
	}
	running, end := context.WithCancel(ctx)
	failed := make(chan struct{}, 1)
	work := reconciler.New(reconciler.Options{Store: s, Launcher: client, Fleet: pipelines.Fleet, Owner: "test", Observe: func(e reconciler.Event) {
		if e.Kind == reconciler.Failed {
			failed <- struct{}{}
		}
	}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		work.Run(running)
	}()
	select {
	case <-failed:
	case <-time.After(time.Minute):
		t.Error("the run did not end")
	}
	end()
	<-done
	_, ended := trace.StartAt(ctx, time.Now().Add(-time.Minute), "broken")
	ended(fmt.Errorf("reading: %w", errors.New("hush-error")))
	if err := stop(ctx); err != nil {
		t.Fatal(err)
	}

	request, accept, run, create, broken := r.named("POST /submit/{board}"), r.named("accept"), r.named("run"), r.named("create"), r.named("broken")
	if len(request) != 2 || len(accept) != 2 || len(run) != 1 || len(create) != 1 || len(broken) != 1 {
		t.Fatalf("the spans are %v", r.spans)
	}
	for i, want := range []string{"202", "500"} {
		if got := attr(request[i], "http.response.status_code"); got != want || fmt.Sprintf("%x %x", request[i].TraceId, request[i].ParentSpanId) != "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331" {
			t.Errorf("request %d: %v, want status %s below the client's", i, request[i], want)
		}
		if !slices.Equal(accept[i].ParentSpanId, request[i].SpanId) {
			t.Errorf("accept %d is not below its request: %v", i, accept[i])
		}
	}
	for _, span := range []*wire.Span{accept[0], run[0], create[0]} {
		if got := attr(span, "kbserve.submission"); got != "1" {
			t.Errorf("%s is of submission %s", span.Name, got)
		}
	}
	if id := attr(run[0], "kbserve.run"); id == "" || id != attr(create[0], "kbserve.run") || !slices.Equal(create[0].ParentSpanId, run[0].SpanId) {
		t.Errorf("create is not below its run: %v, %v", run[0], create[0])
	}
	if took := time.Duration(broken[0].EndTimeUnixNano - broken[0].StartTimeUnixNano); took < time.Minute || attr(broken[0], "error.type") != "*errors.errorString" {
		t.Errorf("broken took %s: %v", took, broken[0])
	}
	if all := fmt.Sprint(r.spans); strings.Contains(all, "hush") {
		t.Errorf("a span tells a secret: %s", all)
	}
}
