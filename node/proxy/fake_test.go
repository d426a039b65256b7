package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/audit"
)

// A fake is an engine that has containers and runs none.
type fake struct {
	t      testing.TB
	socket string

	mu         sync.Mutex
	asked      []string                     // "POST /containers/create", in order
	bodies     map[string][]byte            // of the last request by path
	queries    map[string]string            // the same
	headers    map[string]http.Header       // the same
	containers map[string]map[string]string // labels by ID
	ended      map[string]chan struct{}     // closed when a container has ended
	missing    bool                         // no image is there
	instant    bool                         // containers have ended when they are created
	stuck      bool                         // containers cannot be removed
}

func newFake(t testing.TB) *fake {
	t.Helper()
	dir, err := os.MkdirTemp("", "kbp-") // short: a socket lies in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &fake{t: t, socket: filepath.Join(dir, "s"), bodies: map[string][]byte{}, queries: map[string]string{}, headers: map[string]http.Header{},
		containers: map[string]map[string]string{}, ended: map[string]chan struct{}{}}
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: f}
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(l) }() // ends with Close
	t.Cleanup(func() { server.Close(); <-done })
	return f
}

// add puts a container there that somebody has made.
func (f *fake) add(id string, labels map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.containers[id] = labels
	f.ended[id] = make(chan struct{})
	if f.instant {
		close(f.ended[id])
	}
}

// end ends a container, which is gone then.
func (f *fake) end(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.containers, id)
	if !f.instant {
		close(f.ended[id])
	}
}

func (f *fake) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *fake) body(path string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bodies[path]
}

func (f *fake) query(path string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queries[path]
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.Path)
	f.bodies[r.URL.Path], f.queries[r.URL.Path], f.headers[r.URL.Path] = body, r.URL.RawQuery, r.Header
	f.mu.Unlock()
	path := version.ReplaceAllString(r.URL.Path, "/")
	id, verb, _ := strings.Cut(strings.TrimPrefix(path, "/containers/"), "/")
	switch {
	case path == "/containers/create":
		f.create(w, body)
	case path == "/containers/json":
		f.list(w, r)
	case strings.HasPrefix(path, "/containers/"):
		f.container(w, r, id, verb)
	default:
		fmt.Fprint(w, "{}")
	}
}

func (f *fake) create(w http.ResponseWriter, body []byte) {
	var got struct{ Labels map[string]string }
	if f.missing || json.Unmarshal(body, &got) != nil {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"message":"No such image"}`)
		return
	}
	f.mu.Lock()
	id := fmt.Sprintf("%064d", len(f.asked))
	f.mu.Unlock()
	f.add(id, got.Labels)
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"Id":%q,"Warnings":[]}`, id)
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	asked, _ := filters(r.URL.Query().Get("filters"))
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []map[string]any{}
	for id, labels := range f.containers {
		fits := true
		for _, label := range asked["label"] {
			key, value, _ := strings.Cut(label, "=")
			fits = fits && labels[key] == value
		}
		if fits {
			all = append(all, map[string]any{"Id": id, "Labels": labels})
		}
	}
	json.NewEncoder(w).Encode(all)
}

func (f *fake) container(w http.ResponseWriter, r *http.Request, id, verb string) {
	f.mu.Lock()
	labels, there := f.containers[id]
	ended := f.ended[id]
	f.mu.Unlock()
	switch {
	case verb == "wait" && ended != nil:
		select {
		case <-ended:
			fmt.Fprint(w, `{"StatusCode":3}`)
		case <-r.Context().Done():
		}
	case !there:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"message":"No such container: %s"}`, id)
	case r.Method == http.MethodDelete && f.stuck:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"message":"did not receive an exit event"}`)
	case r.Method == http.MethodDelete:
		f.end(id)
		w.WriteHeader(http.StatusNoContent)
	case verb == "json":
		json.NewEncoder(w).Encode(map[string]any{"Id": id, "Config": map[string]any{"Labels": labels}})
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

const (
	testImage = "runner:1"
	testID    = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
)

// slot is one with everything.
func slot() *node.Slot {
	return &node.Slot{
		Name: "gpu0", User: "kbagent-gpu0", Platform: "docker", CPUs: "0-3", MemoryNodes: "0", MemoryBytes: 4 << 30, Pids: 100,
		Devices: []node.Device{{Vendor: "nvidia", CDI: "nvidia.com/gpu=GPU-1", Nodes: []string{"/dev/nvidia7", "/dev/nvidiactl"}}},
		Images:  []string{testImage, "unpinned:1"},
	}
}

// A rig is a proxy in front of a fake engine.
type rig struct {
	*fake
	*Proxy
	temp   string
	server *httptest.Server
}

func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{fake: newFake(t), temp: t.TempDir()}
	o := Options{Slot: slot(), UID: 4321, GID: 4322, JobUID: 4323, Engine: r.socket, TempDir: r.temp, Pins: func() (*node.Pins, error) {
		return &node.Pins{Images: map[string]node.Pin{testImage: {ID: testID}}}, nil
	}, Ended: func(context.Context) error { return nil }, Stuck: func(context.Context, error) {}, Audit: func(audit.Record) error { return nil }, Log: func(string, ...any) {}}
	for _, fn := range change {
		fn(&o)
	}
	var err error
	if r.Proxy, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.server = httptest.NewServer(r.Proxy)
	t.Cleanup(r.server.Close)
	return r
}

// ask asks the proxy and returns the status and the body, or the message in it.
func (r *rig) ask(method, path, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	var said struct{ Message string }
	if json.Unmarshal(text, &said) == nil && said.Message != "" {
		return resp.StatusCode, said.Message
	}
	return resp.StatusCode, string(text)
}

// created creates a container and returns its ID.
func (r *rig) created(body string) string {
	r.t.Helper()
	status, text := r.ask("POST", "/v1.45/containers/create", body)
	var made struct {
		ID string `json:"Id"`
	}
	if err := json.Unmarshal([]byte(text), &made); status != http.StatusCreated || err != nil {
		r.t.Fatalf("create: status %d, %s", status, text)
	}
	return made.ID
}
