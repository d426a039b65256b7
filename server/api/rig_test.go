package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/popcorn"
	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/api"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/server/identity"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

func TestMain(m *testing.M) { servertest.Main(m) }

const adminToken = "canary-admin-token-0123456789"

// A rig is a server with a public board "sort" and a closed one "dark", and three
// users: ann and bob, who submit, and eve.
type rig struct {
	*httptest.Server
	s     *store.Store
	q     *servertest.Queue
	back  *backend.Backend
	log   *testenv.Log
	cli   map[string]string // CLI ids by name
	users map[string]string // user ids by name
	woken chan bool         // gets a value when runs were planned
	stop  chan struct{}     // closed: the server is about to stop
}

func newRig(t testing.TB, s *store.Store, change func(*api.Options)) *rig {
	t.Helper()
	ctx := context.Background()
	r := &rig{s: s, q: &servertest.Queue{Waits: map[int64]backend.Wait{}}, log: &testenv.Log{}, cli: map[string]string{}, users: map[string]string{"ann": "7", "bob": "8", "eve": "9"}, woken: make(chan bool, 1000), stop: make(chan struct{})}
	r.q.OnWake = func() { r.woken <- true }
	dark := servertest.Board("dark")
	dark.Visibility = store.Closed
	servertest.Save(t, s, servertest.Board("sort"), dark)
	for name, id := range r.users {
		var err error
		if r.cli[name], err = s.NewCLIID(ctx, id, name); err != nil {
			t.Fatal(err)
		}
	}
	logger := slog.New(slog.NewTextHandler(r.log, nil))
	signing := bytes.Repeat([]byte{7}, 32)
	r.back = backend.New(backend.Options{Store: s, Queue: r.q})
	running, end := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() { r.back.Run(running, nil); close(over) }()
	t.Cleanup(func() { end(); <-over })
	who, err := identity.New(identity.Options{Store: s, Signing: signing, PublicURL: "http://kb.test", AdminToken: adminToken, Log: logger,
		Providers: []identity.Provider{{Name: "github", ClientID: "client", ClientSecret: "canary-client-secret", AuthURL: "http://127.0.0.1:1/", TokenURL: "http://127.0.0.1:1/", UserURL: "http://127.0.0.1:1/"}}})
	if err != nil {
		t.Fatal(err)
	}
	o := api.Options{Backend: r.back, Identity: who, Log: logger, Stopping: r.stop, Beat: 50 * time.Millisecond}
	if change != nil {
		change(&o)
	}
	r.Server = httptest.NewServer(httpx.Wrap(api.New(o), httpx.Options{Log: logger}))
	t.Cleanup(r.Close)
	return r
}

// client is popcorn-cli as a user has it.
func (r *rig) client(name string) *popcorn.Client {
	return &popcorn.Client{URL: r.URL, CLIID: r.cli[name], AdminToken: adminToken, Poll: time.Millisecond}
}

// both runs a test on each kind of store.
func both(t *testing.T, test func(t *testing.T, r *rig)) {
	for kind, open := range servertest.Stores {
		t.Run(kind, func(t *testing.T) { test(t, newRig(t, open(t), nil)) })
	}
}

// An answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request as somebody: a user by name, "admin", or "" for nobody. A body
// that is a string goes out as it is, anything else as JSON.
func (r *rig) ask(t testing.TB, as, method, path string, body any) answer {
	t.Helper()
	var reader io.Reader
	kind := ""
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	case form:
		reader, kind = strings.NewReader(b.body), b.kind
	default:
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		reader, kind = bytes.NewReader(text), "application/json"
	}
	req, err := http.NewRequest(method, r.URL+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	r.sign(req, as)
	return r.send(t, req)
}

func (r *rig) sign(req *http.Request, as string) {
	switch {
	case as == "admin":
		req.Header.Set("Authorization", "Bearer "+adminToken)
	case as != "":
		req.Header.Set(identity.HeaderCLI, r.cli[as])
	}
}

func (r *rig) send(t testing.TB, req *http.Request) answer {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// A form is a body with its content type.
type form struct{ kind, body string }

// upload is a form with one file, as browsers send it.
func upload(name, code string) form {
	return form{"multipart/form-data; boundary=XXXX", "--XXXX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name + "\"\r\nContent-Type: text/x-python\r\n\r\n" + code + "\r\n--XXXX--\r\n"}
}

// decode reads an answer's JSON.
func decode[T any](t testing.TB, a answer) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return v
}

// fails is a result whose public tests fail.
func fails(p store.PlannedRun) *schema.Result {
	r := servertest.Result(p.Mode, false, 0)
	r.Outcome = schema.NewOutcome(schema.OutcomeWrong, "")
	return r
}
