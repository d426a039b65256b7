package launcher

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const testToken = "bkua_0123456789abcdef"

// fake is as much of Buildkite's REST API as the launcher speaks, and the
// object store its downloads redirect to, on another host name. It is served
// over loopback, or called in place by the clients of a bubble.
type fake struct {
	t        *testing.T
	apiURL   string // without a final slash
	storeURL string
	mux      *http.ServeMux
	inPlace  bool
	hangUp   func() // ends the API's server

	mu       sync.Mutex
	builds   []*fakeBuild
	requests []string // "GET /path?query" of the API, in order
	bodies   []string // of creates
	expired  int      // links that the store refuses as expired, counted down
	corrupt  func(data []byte) []byte

	storeDown func() bool // reports whether the store answers 503

	// onCreate scripts a new build.
	onCreate func(*fakeBuild)
	// fault answers a request in the fake's place when it returns true.
	fault func(w http.ResponseWriter, r *http.Request) bool
	// header is set on every answer.
	header http.Header
	// perPage, when not 0, makes pages smaller than asked for.
	perPage int
}

// newFake serves a fake over loopback, for what net/http has to do with.
func newFake(t *testing.T) *fake {
	f := makeFake(t)
	api, store := httptest.NewServer(http.HandlerFunc(f.serveAPI)), httptest.NewServer(http.HandlerFunc(f.serveFile))
	t.Cleanup(store.Close)
	t.Cleanup(api.Close)
	f.apiURL, f.storeURL, f.hangUp = api.URL, store.URL, api.Close
	return f
}

// bubble runs a test under a clock of its own, which stands still while
// anything is done and jumps when everything waits: minutes pass at once, and
// no load of the machine shows.
func bubble(t *testing.T, test func(t *testing.T, f *fake)) {
	synctest.Test(t, func(t *testing.T) {
		f := makeFake(t)
		f.apiURL, f.storeURL, f.inPlace = "http://127.0.0.1:1", "http://localhost:2", true
		test(t, f)
	})
}

func makeFake(t *testing.T) *fake {
	f := &fake{t: t, mux: http.NewServeMux()}
	const base = "/v2/organizations/gpu-mode/pipelines/kernelbot/builds"
	f.mux.HandleFunc("POST "+base, f.create)
	f.mux.HandleFunc("GET "+base, f.list)
	f.mux.HandleFunc("GET "+base+"/{n}", f.get)
	f.mux.HandleFunc("PUT "+base+"/{n}/cancel", f.cancel)
	f.mux.HandleFunc("GET "+base+"/{n}/artifacts", f.artifacts)
	f.mux.HandleFunc("GET "+base+"/{n}/jobs/{job}/log", f.log)
	f.mux.HandleFunc("GET "+base+"/{n}/jobs/{job}/artifacts/{id}/download", f.download)
	return f
}

func (f *fake) serveAPI(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.RequestURI())
	fault := f.fault
	for name, values := range f.header {
		w.Header()[name] = values
	}
	f.mu.Unlock()
	if got := r.Header.Get("Authorization"); got != "Bearer "+testToken {
		http.Error(w, `{"message":"Unauthorized"}`, http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodGet && r.ContentLength > 0 {
		http.Error(w, `{"message":"GET with a body"}`, http.StatusForbidden)
		return
	}
	if fault != nil && fault(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	f.mux.ServeHTTP(w, r)
}

// RoundTrip calls the fake in place of a network.
func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	if "http://"+r.URL.Host == f.storeURL {
		f.serveFile(w, r)
	} else {
		f.serveAPI(w, r.Clone(r.Context()))
	}
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

// client returns a client of f. Over loopback it waits a hundredth of its
// pauses.
func (f *fake) client() *Client { return f.installed("") }

// installed returns one of that installation.
func (f *fake) installed(id string) *Client {
	f.t.Helper()
	var rt http.RoundTripper = newHTTPTransport()
	if f.inPlace {
		rt = f
	}
	c, err := newClient(Options{BaseURL: f.apiURL + "/", Token: testToken, Org: "gpu-mode", Pipeline: "kernelbot", Installation: id}, rt, rt)
	if err != nil {
		f.t.Fatal(err)
	}
	if !f.inPlace {
		c.pause = func(ctx context.Context, d time.Duration) error { return pause(ctx, d/100) }
	}
	return c
}

func fail(w http.ResponseWriter, status int, body string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, body)
	return true
}

// drop closes the connection without an answer.
func drop(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }

func (f *fake) create(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, _ := io.ReadAll(r.Body)
	var body struct {
		Env      map[string]string
		MetaData map[string]string `json:"meta_data"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		fail(w, 422, `{"message":"bad JSON"}`)
		return
	}
	f.bodies = append(f.bodies, string(data))
	b := &fakeBuild{number: len(f.builds) + 1, state: "scheduled", env: body.Env, meta: body.MetaData, created: time.Now()}
	if f.onCreate != nil {
		f.onCreate(b)
	}
	f.builds = append(f.builds, b)
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(f.show(b, true))
}

func (f *fake) show(b *fakeBuild, jobs bool) map[string]any {
	m := map[string]any{
		"id": fmt.Sprintf("0190-%d", b.number), "number": b.number, "state": b.state, "blocked": b.blocked,
		"url":     fmt.Sprintf("%s/v2/organizations/gpu-mode/pipelines/kernelbot/builds/%d", f.apiURL, b.number),
		"web_url": fmt.Sprintf("https://buildkite.com/gpu-mode/kernelbot/builds/%d", b.number),
		"env":     b.env, "meta_data": b.meta, "created_at": b.created.UTC().Format(time.RFC3339Nano),
		"pipeline": map[string]any{"provider": map[string]any{"id": "github"}}, // does not decode in go-buildkite
	}
	if slices.Contains(terminalStates, b.state) {
		if b.finished.IsZero() {
			b.finished = time.Now()
		}
		m["finished_at"] = b.finished.UTC().Format(time.RFC3339Nano)
	}
	if jobs {
		m["jobs"] = b.jobs
	}
	return m
}

func (f *fake) get(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.find(w, r)
	if b == nil {
		return
	}
	b.probe()
	json.NewEncoder(w).Encode(f.show(b, r.URL.Query().Get("exclude_jobs") != "true"))
}

func (f *fake) find(w http.ResponseWriter, r *http.Request) *fakeBuild {
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil || n < 1 || n > len(f.builds) {
		fail(w, 404, `{"message":"No build found"}`)
		return nil
	}
	return f.builds[n-1]
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := r.URL.Query()
	var found []any
	for _, b := range slices.Backward(f.builds) {
		ok := true
		for key, values := range q {
			if name, is := strings.CutPrefix(key, "meta_data["); is {
				ok = ok && b.meta[strings.TrimSuffix(name, "]")] == values[0]
			}
		}
		if !ok {
			continue
		}
		if b.hidden != nil && b.hidden(q) {
			continue
		}
		b.probe()
		f.show(b, false) // notes when it finished
		if from, err := time.Parse(time.RFC3339, q.Get("finished_from")); err == nil && b.finished.Before(from) {
			continue
		}
		if states := q["state[]"]; len(states) == 0 || slices.Contains(states, b.state) {
			found = append(found, f.show(b, q.Get("exclude_jobs") != "true"))
		}
	}
	f.page(w, r, found)
}

// page writes one page of items with its Link header.
func (f *fake) page(w http.ResponseWriter, r *http.Request, items []any) {
	q := r.URL.Query()
	size, _ := strconv.Atoi(q.Get("per_page"))
	size = min(max(size, 1), 100)
	if f.perPage > 0 {
		size = f.perPage
	}
	page, _ := strconv.Atoi(q.Get("page"))
	page = max(page, 1)
	from := min((page-1)*size, len(items))
	to := min(from+size, len(items))
	if to < len(items) {
		q.Set("page", strconv.Itoa(page+1))
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?%s>; rel="next", <x>; rel="last"`, f.apiURL, r.URL.Path, q.Encode()))
	}
	json.NewEncoder(w).Encode(append([]any{}, items[from:to]...))
}

func (f *fake) cancel(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.find(w, r)
	if b == nil {
		return
	}
	if slices.Contains(terminalStates, b.state) {
		fail(w, 422, `{"message":"Build can't be canceled because it's already finished."}`)
		return
	}
	b.state = "canceled"
	json.NewEncoder(w).Encode(f.show(b, true))
}

func (f *fake) artifacts(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.find(w, r)
	if b == nil {
		return
	}
	var items []any
	for i, a := range b.artifacts {
		sum := sha1.Sum(a.data)
		m := map[string]any{
			"id": fmt.Sprintf("art-%d", i), "job_id": a.job, "state": "finished", "path": a.path,
			"filename": a.path[strings.LastIndex(a.path, "/")+1:], "file_size": len(a.data), "sha1sum": hex.EncodeToString(sum[:]),
			"download_url": fmt.Sprintf("%s/v2/organizations/gpu-mode/pipelines/kernelbot/builds/%d/jobs/%s/artifacts/art-%d/download", f.apiURL, b.number, a.job, i),
		}
		if a.size != 0 {
			m["file_size"] = a.size
		}
		if a.sum != "" {
			m["sha1sum"] = a.sum
		}
		if a.url != "" {
			m["download_url"] = a.url
		}
		items = append(items, m)
	}
	f.page(w, r, items)
}

// download redirects to the store under the name localhost, which net/http
// takes for another host than 127.0.0.1.
func (f *fake) download(w http.ResponseWriter, r *http.Request) {
	u, _ := url.Parse(f.storeURL)
	to := fmt.Sprintf("http://localhost:%s/%s/%s?X-Signature=secret-link", u.Port(), r.PathValue("n"), r.PathValue("id"))
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusFound)
	json.NewEncoder(w).Encode(map[string]string{"url": to})
}

func (f *fake) serveFile(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, values := range r.Header {
		if strings.Contains(strings.Join(values, " "), testToken) {
			f.t.Errorf("the store got the token in %s", name)
		}
	}
	if r.Header.Get("Authorization") != "" {
		http.Error(w, "only one auth mechanism", http.StatusBadRequest)
		return
	}
	if f.storeDown != nil && f.storeDown() {
		http.Error(w, "<Error>Slow down</Error>", http.StatusServiceUnavailable)
		return
	}
	if f.expired > 0 {
		f.expired--
		http.Error(w, "<Error>Request has expired</Error>", http.StatusForbidden)
		return
	}
	var n, i int
	fmt.Sscanf(r.URL.Path, "/%d/art-%d", &n, &i)
	data := f.builds[n-1].artifacts[i].data
	if f.corrupt != nil {
		data = f.corrupt(data)
	}
	w.Write(data)
}

func (f *fake) log(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.find(w, r)
	if r.Header.Get("Accept") != "text/plain" || !strings.HasPrefix(r.Header.Get("Range"), "bytes=-") {
		fail(w, 400, `{"message":"bad range"}`)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusPartialContent)
	io.WriteString(w, b.log)
}

// count counts the requests contain all parts.
func (f *fake) count(parts ...string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.requests {
		ok := true
		for _, p := range parts {
			ok = ok && strings.Contains(r, p)
		}
		if ok {
			n++
		}
	}
	return n
}
