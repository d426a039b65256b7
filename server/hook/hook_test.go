package hook

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

func TestMain(m *testing.M) { servertest.Main(m) }

const secret = "hush-hush"

// patience bounds the waiting for what is sure to come.
const patience = time.Minute

// start runs a hook until stop is called, or the test ends.
func start(t *testing.T, o Options) (stop func()) {
	t.Helper()
	o.Secret, o.Pause, o.Sweep = secret, time.Millisecond, 50*time.Millisecond
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	signals := o.Store.Signals(ctx)
	running.Go(func() { h.Run(ctx) })
	running.Go(func() {
		for s := range signals {
			h.Signal(s)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func submit(t *testing.T, s *store.Store, user, mode, code string) int64 {
	t.Helper()
	out, err := s.Accept(t.Context(), store.Submission{Board: "sort", GPU: "H100", Mode: mode, UserID: user, UserName: "user " + user, FileName: "a.py", Code: []byte(code), Time: time.Now(), Check: true})
	if err != nil {
		t.Fatal(err)
	}
	return out.ID
}

// await polls a submission until it is as wanted.
func await(t *testing.T, s *store.Store, id int64, what string, reached func(*store.Polled) bool) *store.Polled {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		p, err := s.Poll(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if reached(p) {
			return p
		}
		if time.Now().After(until) {
			t.Fatalf("submission %d is not %s: %+v", id, what, p)
		}
	}
}

func waitsToRun(p *store.Polled) bool {
	return len(p.Open) > 0 && p.Open[0].State == store.StatePlanned
}

// awaitLine waits until the log has some words.
func awaitLine(t *testing.T, l *testenv.Log, words string) {
	t.Helper()
	for until := time.Now().Add(patience); !strings.Contains(l.String(), words); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the log has no %q:\n%s", words, l)
		}
	}
}

// wantNothingDue fails the test if an event is left. The hook must have been stopped.
func wantNothingDue(t *testing.T, s *store.Store) {
	t.Helper()
	if due, err := s.ClaimHookDeliveries(t.Context(), 10, 0); err != nil || len(due) != 0 {
		t.Errorf("due at the end: %+v, %v", due, err)
	}
}

// The receiver of docs/kbserve.md works as it is printed there.
func TestReceiverOfTheDocumentation(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("NOT RUN: no python3 is installed")
	}
	page, err := os.ReadFile("../../docs/kbserve.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	if code == nil {
		t.Fatal("the page has no receiver")
	}
	receiver := exec.Command(python, "-c", string(code[1]), "0")
	receiver.Env = append(os.Environ(), "KBSERVE_HOOK_SECRET="+secret)
	out, err := receiver.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		receiver.Process.Kill()
		receiver.Wait() // killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := "http://127.0.0.1:" + strings.TrimSpace(strings.TrimPrefix(line, "port"))

	s := servertest.SQLite(t)
	servertest.Save(t, s, servertest.Board("sort"))
	lines := &testenv.Log{}
	stop := start(t, Options{Store: s, URL: url, Log: slog.New(slog.NewTextHandler(lines, nil))})
	good, bad := submit(t, s, "7", schema.ModeTest, "x = 1\n"), submit(t, s, "8", schema.ModeTest, "torch.compile(x)\n")
	p := await(t, s, bad, "rejected", func(p *store.Polled) bool { return p.Done })
	if p.Job.Error != "rejected by the organizers: torch.compile is not allowed" || p.Progress() != schema.OutcomeRejected {
		t.Errorf("the rejected submission has error %q and outcome %s", p.Job.Error, p.Progress())
	}
	await(t, s, good, "accepted", waitsToRun)
	servertest.Evaluate(t, s, nil)
	await(t, s, good, "done", func(p *store.Polled) bool { return p.Done && p.Progress() == schema.OutcomePassed })
	awaitLine(t, lines, fmt.Sprintf(`taken a result" submission=%d`, good))
	awaitLine(t, lines, fmt.Sprintf(`taken a result" submission=%d`, bad))
	stop()
	wantNothingDue(t, s)

	body := []byte(`{"event": "submission.done"}`)
	for name, signature := range map[string]string{
		"none": "", "garbage": "timestamp=1", "another key": Sign("x", time.Now(), body), "another body": Sign(secret, time.Now(), []byte("{}")), "old": Sign(secret, time.Now().Add(-time.Hour), body),
	} {
		req, err := http.NewRequest("POST", url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(SignatureHeader, signature)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 401 {
			t.Errorf("signature: %s: got status %d, want 401", name, resp.StatusCode)
		}
	}
}

// asked is what a receiver reads of an event.
type asked struct {
	Event string
	ID    int64
}

// A receiver answers as a test wants, and remembers requests.
type receiver struct {
	*httptest.Server
	answer func(w http.ResponseWriter, e asked, try int) // try counts from 1 for each delivery

	mu     sync.Mutex
	tries  map[string]int // by delivery id
	bodies map[string]string
}

func newReceiver(t *testing.T, answer func(w http.ResponseWriter, e asked, try int)) *receiver {
	r := &receiver{answer: answer, tries: map[string]int{}, bodies: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		var e asked
		var unix int64
		if err := json.Unmarshal(body, &e); err != nil {
			t.Errorf("got body %.100q", body)
		}
		if fmt.Sscanf(req.Header.Get(SignatureHeader), "timestamp=%d,", &unix); Sign(secret, time.Unix(unix, 0), body) != req.Header.Get(SignatureHeader) {
			t.Errorf("got signature %q", req.Header.Get(SignatureHeader))
		}
		id := req.Header.Get(DeliveryHeader)
		r.mu.Lock()
		r.tries[id]++
		try := r.tries[id]
		r.bodies[fmt.Sprint(e.ID, e.Event)] = string(body)
		r.mu.Unlock()
		r.answer(w, e, try)
	}))
	t.Cleanup(r.Close)
	return r
}

func accept(w http.ResponseWriter, _ asked, _ int) { fmt.Fprint(w, `{"decision": "accept"}`) }

// A question is repeated under the same id until the answer is a decision; meanwhile
// the submission waits.
func TestAHookThatDoesNotAnswer(t *testing.T) {
	bad := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(500) },
		func(w http.ResponseWriter) { w.Header().Set("Retry-After", "0.01"); w.WriteHeader(429) },
		func(w http.ResponseWriter) { w.WriteHeader(404) },
		func(w http.ResponseWriter) { w.Header().Set("Location", "/elsewhere"); w.WriteHeader(302) },
		func(w http.ResponseWriter) { w.WriteHeader(204) },
		func(w http.ResponseWriter) { fmt.Fprint(w, "<html>accept") },
		func(w http.ResponseWriter) { fmt.Fprint(w, `{"decision": "yes"}`) },
		func(w http.ResponseWriter) { fmt.Fprint(w, `{"decision": ["accept"]}`) },
		func(w http.ResponseWriter) { panic(http.ErrAbortHandler) },
		func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"reason": "`)
			for range 200 << 4 { // 200 MB, unless the client has enough before
				if _, err := w.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
					return
				}
			}
			t.Error("200 MB of an answer were read")
		},
	}
	r := newReceiver(t, func(w http.ResponseWriter, e asked, try int) {
		if e.Event == store.EventAccepted && try <= len(bad) {
			bad[try-1](w)
			return
		}
		accept(w, e, try)
	})
	s := servertest.SQLite(t)
	servertest.Save(t, s, servertest.Board("sort"))
	lines := &testenv.Log{}
	stop := start(t, Options{Store: s, URL: r.URL + "/path-is-secret", Log: slog.New(slog.NewTextHandler(lines, nil))})
	id := submit(t, s, "7", schema.ModeTest, "x = 1\n")
	await(t, s, id, "accepted", waitsToRun)
	servertest.Evaluate(t, s, nil)
	awaitLine(t, lines, "taken a result")
	stop()
	wantNothingDue(t, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tries) != 2 || r.tries[deliveryOf(r, "-accepted")] != len(bad)+1 {
		t.Errorf("tries by delivery: %v; want %d of one id, and the result under another", r.tries, len(bad)+1)
	}
	for _, want := range []string{"got status 500", "got status 404", "got status 302", "not a JSON object", `the answer has decision \"yes\"`} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, lines)
		}
	}
	for _, never := range []string{"path-is-secret", secret, "x = 1"} {
		if strings.Contains(lines.String(), never) {
			t.Errorf("the log has %s:\n%s", never, lines)
		}
	}
}

func deliveryOf(r *receiver, end string) string {
	for id := range r.tries {
		if strings.HasSuffix(id, end) {
			return id
		}
	}
	return ""
}

// A hook that hangs has a bounded number of requests under way and stops nothing else.
// When its process ends, the next one asks again under the same ids.
func TestAHookThatHangs(t *testing.T) {
	var under, most atomic.Int64
	hang := make(chan struct{})
	full := make(chan struct{}, 100)
	r := newReceiver(t, func(w http.ResponseWriter, e asked, try int) {
		n := under.Add(1)
		defer under.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if try == 1 && n <= limit {
			full <- struct{}{}
			<-hang
		}
		accept(w, e, try)
	})
	defer close(hang)
	s := servertest.SQLite(t)
	servertest.Save(t, s, servertest.Board("sort"))
	const submissions = limit + 2
	for i := range submissions {
		submit(t, s, fmt.Sprint(i+1), schema.ModeTest, "x = 1\n")
	}
	stop := start(t, Options{Store: s, URL: r.URL})
	for range limit {
		<-full
	}
	free, err := s.Accept(t.Context(), store.Submission{Board: "sort", GPU: "H100", Mode: schema.ModeTest, UserID: "99", FileName: "a.py", Code: []byte("y = 1\n"), Time: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	servertest.Evaluate(t, s, nil)
	if p, err := s.Poll(t.Context(), free.ID); err != nil || !p.Done {
		t.Errorf("a submission that waits for no hook: %+v, %v; want it done", p, err)
	}
	stop()
	if got := most.Load(); got != limit {
		t.Errorf("%d requests were under way, want %d", got, limit)
	}
	start(t, Options{Store: s, URL: r.URL})
	for id := range int64(submissions) {
		await(t, s, id+1, "accepted", waitsToRun)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tries) != submissions {
		t.Errorf("%d deliveries, want %d", len(r.tries), submissions)
	}
}

// Of several instances one delivers, and an event that a killed process had claimed is
// delivered when its lease ends. What the receiver gets has no secrets.
func TestSeveralInstancesDeliverOnce(t *testing.T) {
	for name, open := range servertest.Stores {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t, accept)
			s := open(t)
			servertest.Save(t, s, servertest.Board("sort"))
			const submissions = 5
			for i := range submissions {
				submit(t, s, fmt.Sprint(i+1), schema.ModeLeaderboard, "code-of-the-submission\n")
			}
			if killed, err := s.ClaimHookDeliveries(t.Context(), 1, 100*time.Millisecond); err != nil || len(killed) != 1 {
				t.Fatal(killed, err)
			}
			for range 2 {
				start(t, Options{Store: s, URL: r.URL})
			}
			for id := range int64(submissions) {
				await(t, s, id+1, "accepted", waitsToRun)
			}
			servertest.Evaluate(t, s, func(p store.PlannedRun) *schema.Result {
				r := servertest.Result(p.Mode, !p.Secret || p.Submission != 1, 1000)
				if p.Secret && p.Submission == 1 {
					r.Outcome = schema.NewOutcome(schema.OutcomeTimeout, "")
				}
				return r
			})
			awaitDone := time.Now().Add(patience)
			for r.count() < 2*submissions && time.Now().Before(awaitDone) {
				time.Sleep(5 * time.Millisecond)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			for id, n := range r.tries {
				if n != 1 {
					t.Errorf("delivery %s came %d times", id, n)
				}
			}
			for key, want := range map[string][]string{
				"1submission.accepted": {`"code":"code-of-the-submission\n"`, `"board":"sort","gpu_type":"H100","mode":"leaderboard","user_id":"1","user_name":"user 1","file_name":"a.py"`},
				"1submission.done":     {`"outcome":"wrong"`, `"ranks":false`},
				"2submission.done":     {`"outcome":"passed","error":"","score":0.000001,"ranks":true`},
			} {
				for _, part := range want {
					if !strings.Contains(strings.ReplaceAll(r.bodies[key], "1e-06", "0.000001"), part) {
						t.Errorf("%s: got %s, want %s", key, r.bodies[key], part)
					}
				}
				if strings.Contains(key, "done") && strings.Contains(r.bodies[key], "code") || strings.Contains(r.bodies[key], "seed") {
					t.Errorf("%s: got %s", key, r.bodies[key])
				}
			}
		})
	}
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tries)
}

// A result that the hook does not take is dropped after a while, and a held submission
// is not asked about again.
func TestAResultIsGivenUp(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, e asked, _ int) {
		if e.Event == store.EventDone {
			w.WriteHeader(500)
			return
		}
		fmt.Fprint(w, `{"decision": "hold"}`)
	})
	s := servertest.SQLite(t)
	servertest.Save(t, s, servertest.Board("sort"))
	lines := &testenv.Log{}
	stop := start(t, Options{Store: s, URL: r.URL, GiveUp: time.Millisecond, Log: slog.New(slog.NewTextHandler(lines, nil))})
	id := submit(t, s, "7", schema.ModeTest, "x = 1\n")
	await(t, s, id, "held", func(*store.Polled) bool {
		waits, err := s.HookWaits(t.Context())
		return err == nil && len(waits) == 1 && waits[0].Held
	})
	if err := s.Decide(t.Context(), id, false, "no"); err != nil {
		t.Fatal(err)
	}
	awaitLine(t, lines, "will not be")
	stop()
	wantNothingDue(t, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.tries[deliveryOf(r, "-accepted")]; n != 1 {
		t.Errorf("the hook was asked %d times, want 1", n)
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	for _, url := range []string{"", "http://example.org/hush", "https:///hush", "ftp://127.0.0.1/hush", "http://localhost.example.org/hush", "%"} {
		if _, err := New(Options{URL: url, Secret: "x"}); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("New with %q: %v", url, err)
		}
	}
	if _, err := New(Options{URL: "https://example.org/"}); err == nil {
		t.Error("New without a secret: no error")
	}
	if _, err := New(Options{URL: "http://[::1]:9/x", Secret: "x"}); err != nil {
		t.Error(err)
	}
}
