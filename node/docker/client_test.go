package docker

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// serve answers as an engine with these routes, and returns the requests.
func serve(t *testing.T, routes map[string]http.HandlerFunc) (*Client, *[]string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "kbe-") // short: a socket lies in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.RequestURI()) // one request at a time
		if h := routes[r.Method+" "+r.URL.Path]; h != nil {
			h(w, r)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"message":"No such thing"}`)
	})}
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(l) }() // ends with Close
	t.Cleanup(func() { server.Close(); <-done })
	return New(filepath.Join(dir, "s")), &asked
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); fmt.Fprint(w, body) }
}

func TestErrorsAreOneLine(t *testing.T) {
	c, _ := serve(t, map[string]http.HandlerFunc{
		"GET /two":  says(500, `{"message":"first\nsecond"}`),
		"GET /none": says(502, `<html>`),
		"GET /odd":  says(200, `{`),
	})
	for path, want := range map[string]string{
		"/two": "the engine says 500: first second", "/none": "the engine says 502: Bad Gateway", "/missing": "the engine says 404: No such thing",
		"/odd": "asking the engine for /odd: unexpected EOF",
	} {
		var out map[string]any
		if err := c.Do(t.Context(), "GET", path, nil, nil, &out); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if err := c.Do(t.Context(), "GET", "/missing", nil, nil, nil); !Is(err, 404) || Is(err, 500) || Is(nil, 404) {
		t.Errorf("Is: %v", err)
	}
	err := New("/nonexistent/docker.sock").Do(t.Context(), "GET", "/x", nil, nil, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "asking the engine: dial unix /nonexistent/docker.sock") {
		t.Errorf("no engine: %v", err)
	}
}

// A container that the engine removes already is waited for; one that is gone is
// what was wanted; any other no is a fault, and the rest are removed all the same.
func TestReap(t *testing.T) {
	c, asked := serve(t, map[string]http.HandlerFunc{
		"GET /containers/json":        says(200, `[{"Id":"a"},{"Id":"going"},{"Id":"gone"},{"Id":"stuck"},{"Id":"z"}]`),
		"DELETE /containers/a":        says(204, ""),
		"DELETE /containers/going":    says(409, `{"message":"removal of container going is already in progress"}`),
		"POST /containers/going/wait": says(200, `{"StatusCode":0}`),
		"DELETE /containers/stuck":    says(500, `{"message":"device or resource busy"}`),
		"DELETE /containers/z":        says(204, ""),
	})
	n, err := c.Reap(t.Context(), "kbnode.slot=gpu0")
	if want := "removing container stuck: the engine says 500: device or resource busy"; n != 5 || err == nil || err.Error() != want {
		t.Errorf("Reap: %d, %v; want 5, %s", n, err, want)
	}
	query := url.Values{"all": {"1"}, "filters": {`{"label":["kbnode.slot=gpu0"]}`}}
	want := []string{
		"GET /containers/json?" + query.Encode(), "DELETE /containers/a?force=1&v=1", "DELETE /containers/going?force=1&v=1",
		"POST /containers/going/wait?condition=removed", "DELETE /containers/gone?force=1&v=1", "DELETE /containers/stuck?force=1&v=1", "DELETE /containers/z?force=1&v=1",
	}
	if !slices.Equal(*asked, want) {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(*asked, "\n"), strings.Join(want, "\n"))
	}
}
