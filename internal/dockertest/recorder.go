package dockertest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Recorder stands in for an engine that makes one container after the other. It
// starts nothing: a container's output is what was asked for.
type Recorder struct {
	// Program is what a container does: it is called with the request that made it,
	// writes the container's output, and returns its exit status. Nil prints the
	// request. Killed is closed when the container is stopped or removed.
	Program func(request map[string]any, output io.Writer, killed <-chan struct{}) int
	// Proxy has the endpoints of a slot's proxy that an engine does not have, by path.
	Proxy map[string]func() error

	mu         sync.Mutex
	requests   []map[string]any
	containers map[string]*recorded
}

type recorded struct {
	request         map[string]any
	attached        chan io.Writer
	started, killed chan struct{}
	stop            sync.Once
	ended           chan struct{}
	status          int
}

// Record serves a Recorder at a unix socket until the test ends.
func Record(t testing.TB, socket string) *Recorder {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err == nil {
		err = os.Chmod(socket, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &Recorder{containers: map[string]*recorded{}}
	server := &http.Server{Handler: r}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }() // ends with Close
	t.Cleanup(func() { server.Close(); <-done })
	return r
}

// Requests are the bodies of all requests for a container so far.
func (r *Recorder) Requests() []map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Running counts the containers that have not ended.
func (r *Recorder) Running() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.containers)
}

func (r *Recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	path := q.URL.Path
	if strings.HasPrefix(path, "/v1.") {
		path = path[1+strings.Index(path[1:], "/"):]
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	switch {
	case path == "/_ping":
		w.Header().Set("Api-Version", "1.47")
	case path == "/version":
		answer(200, map[string]string{"Version": "27.0.0", "ApiVersion": "1.47"})
	case path == "/info":
		answer(200, map[string]any{})
	case path == "/networks":
		answer(200, []any{map[string]any{"Name": "none", "Id": "none", "Driver": "null", "Scope": "local"}})
	case r.Proxy[path] != nil:
		if err := r.Proxy[path](); err != nil {
			answer(500, map[string]string{"message": err.Error()})
			return
		}
		w.WriteHeader(204)
	case path == "/containers/json":
		answer(200, []any{})
	case path == "/containers/create":
		answer(201, map[string]any{"Id": r.create(q.Body), "Warnings": []string{}})
	case len(parts) >= 2 && parts[0] == "containers":
		r.mu.Lock()
		c := r.containers[parts[1]]
		r.mu.Unlock()
		if c == nil {
			answer(404, map[string]string{"message": "No such container: " + parts[1]})
			return
		}
		r.container(w, q, c, parts[1], append(parts, "")[2], answer)
	default:
		answer(404, map[string]string{"message": "page not found"})
	}
}

func (r *Recorder) create(body io.Reader) string {
	c := &recorded{attached: make(chan io.Writer, 1), started: make(chan struct{}), killed: make(chan struct{}), ended: make(chan struct{})}
	_ = json.NewDecoder(body).Decode(&c.request)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, c.request)
	id := fmt.Sprintf("%064d", len(r.requests))
	r.containers[id] = c
	return id
}

func (r *Recorder) container(w http.ResponseWriter, q *http.Request, c *recorded, id, what string, answer func(int, any)) {
	switch what {
	case "json":
		config, _ := c.request["Labels"].(map[string]any)
		answer(200, map[string]any{"Id": id, "Config": map[string]any{"Labels": config, "Tty": false}, "State": map[string]any{"Running": true}})
	case "attach":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		status := "HTTP/1.1 200 OK\r\n"
		if q.Header.Get("Upgrade") != "" {
			status = "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
		}
		fmt.Fprintf(conn, "%sContent-Type: application/vnd.docker.multiplexed-stream\r\n\r\n", status)
		c.attached <- conn
		<-c.ended
		conn.Close()
	case "start":
		go r.run(c, id) // ends with the container
		w.WriteHeader(204)
	case "wait":
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-c.ended:
			_ = json.NewEncoder(w).Encode(map[string]int{"StatusCode": c.status})
		case <-q.Context().Done():
		}
	default: // stop, kill, and the removal
		c.stop.Do(func() { close(c.killed) })
		w.WriteHeader(204)
	}
}

func (r *Recorder) run(c *recorded, id string) {
	out := frames{<-c.attached}
	if r.Program != nil {
		c.status = r.Program(c.request, out, c.killed)
	} else {
		_ = json.NewEncoder(out).Encode(c.request)
	}
	r.mu.Lock()
	delete(r.containers, id)
	r.mu.Unlock()
	close(c.ended)
}

// frames writes standard output as the engine multiplexes it.
type frames struct{ w io.Writer }

func (f frames) Write(p []byte) (int, error) {
	header := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(header[4:], uint32(len(p)))
	if _, err := f.w.Write(append(header, p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}
