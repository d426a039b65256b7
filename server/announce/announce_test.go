package announce

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

// A rig is a store, and an announcer that posts to a receiver.
type rig struct {
	t     *testing.T
	store *store.Store
	log   bytes.Buffer
	got   chan string // bodies, one for each request

	mu     sync.Mutex
	answer []func(http.ResponseWriter) // to the next requests; without any, 204
}

const secret = "/api/webhooks/17/hush"

func newRig(t *testing.T, s *store.Store) *rig {
	r := &rig{t: t, store: s, got: make(chan string, 100)}
	servertest.Save(t, s, servertest.Board("sort"), servertest.Board("closed"))
	for _, board := range []string{"sort", "closed"} {
		if _, err := s.Announce(context.Background(), board); err != nil {
			t.Fatal(err)
		}
	}
	closed := servertest.Board("closed")
	closed.Visibility = store.Closed
	servertest.Save(t, s, closed)
	return r
}

// start runs an announcer until the test ends.
func (r *rig) start() {
	r.t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if req.Method != "POST" || req.URL.Path != secret || req.Header.Get("Content-Type") != "application/json" {
			r.t.Errorf("got %s %s %s", req.Method, req.URL.Path, req.Header.Get("Content-Type"))
		}
		r.mu.Lock()
		answer := func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }
		if len(r.answer) > 0 {
			answer, r.answer = r.answer[0], r.answer[1:]
		}
		r.mu.Unlock()
		answer(w)
		r.got <- string(body)
	}))
	r.t.Cleanup(receiver.Close)
	a, err := New(Options{Store: r.store, URL: receiver.URL + secret, Settle: time.Millisecond, Pause: time.Millisecond, Sweep: time.Second, Log: slog.New(slog.NewTextHandler(&r.log, nil))})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	signals := r.store.Signals(ctx)
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	running.Go(func() {
		for s := range signals {
			a.Signal(s)
		}
	})
	r.t.Cleanup(func() {
		stop()
		running.Wait()
		if strings.Contains(r.log.String(), "hush") {
			r.t.Errorf("the log has the webhook's address:\n%s", r.log.String())
		}
	})
}

func (r *rig) answers(answers ...func(http.ResponseWriter)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answers
}

func status(code int, header ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if len(header) == 2 {
			w.Header().Set(header[0], header[1])
		}
		w.WriteHeader(code)
	}
}

// rank hands in a submission of a user and has it evaluated.
func (r *rig) rank(board, user, name string, ns float64) int64 {
	r.t.Helper()
	out, err := r.store.Accept(context.Background(), store.Submission{Board: board, GPU: "H100", Mode: schema.ModeLeaderboard, UserID: user, UserName: name,
		FileName: "a.py", Code: []byte("custom_kernel = " + user), Time: time.Now(), AnyTime: true})
	if err != nil {
		r.t.Fatal(err)
	}
	servertest.Evaluate(r.t, r.store, func(p store.PlannedRun) *schema.Result { return servertest.Result(p.Mode, true, ns) })
	return out.ID
}

func (r *rig) expect(want string) {
	r.t.Helper()
	select {
	case body := <-r.got:
		var got struct{ Content string }
		if err := json.Unmarshal([]byte(body), &got); err != nil || got.Content != want {
			r.t.Errorf("got %q, %v; want %q", got.Content, err, want)
		}
	case <-time.After(time.Minute):
		r.t.Fatalf("nothing came in a minute; want %q", want)
	}
}

// What changes among the first three is posted; what many changes have come to is
// one message; what is closed is never named.
func TestLeadersAreAnnounced(t *testing.T) {
	for name, open := range servertest.Stores {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, open(t))
			r.rank("closed", "9", "nobody", 1)
			r.rank("sort", "1", "ann", 990_000)
			r.rank("sort", "2", "bob", 950_120)
			r.rank("sort", "3", "cat", 999_000)
			r.rank("sort", "4", "dan", 999_900)
			r.start()
			r.expect("bob leads sort on H100 with 950.120 µs\nann is second on sort on H100 with 990.000 µs\ncat is third on sort on H100 with 999.000 µs")
			r.rank("closed", "9", "nobody", 0.5)
			r.rank("sort", "1", "ann", 912_300)
			r.expect("ann leads sort on H100 with 912.300 µs (was bob with 950.120 µs)")
			fastest := r.rank("sort", "1", "ann", 912_280)
			r.expect("ann leads sort on H100 with 912.280 µs (was 912.300 µs)")
			r.rank("sort", "5", "@everyone `x`\nhttp://b.example", 980_000)
			r.expect("\\@everyone \\`x\\` http\\:\\/\\/b\\.example is third on sort on H100 with 980.000 µs")
			r.rank("sort", "2", "bob", 912_290)
			r.expect("bob is second on sort on H100 with 912.290 µs")
			if err := r.store.MarkHacked(context.Background(), fastest, "no"); err != nil {
				t.Fatal(err)
			}
			r.expect("bob leads sort on H100 with 912.290 µs")
		})
	}
}

// A receiver in trouble gets the message again, after the time that it asks for;
// one that refuses it gets the next.
func TestAMessageIsPostedAgain(t *testing.T) {
	r := newRig(t, servertest.SQLite(t))
	var limited, next time.Time
	r.answers(status(500), func(w http.ResponseWriter) {
		limited = time.Now()
		status(429, "Retry-After", "0.25")(w)
	}, func(w http.ResponseWriter) {
		next = time.Now()
		status(503, "Retry-After", "NaN")(w)
	})
	r.start()
	r.rank("sort", "1", "ann", 5000)
	r.expect("ann leads sort on H100 with 5.000 µs")
	r.expect("ann leads sort on H100 with 5.000 µs")
	r.expect("ann leads sort on H100 with 5.000 µs")
	if after := next.Sub(limited); after < 250*time.Millisecond {
		t.Errorf("the next try came after %s, want 250ms", after)
	}
	r.expect("ann leads sort on H100 with 5.000 µs")
	r.answers(status(404))
	r.rank("sort", "1", "ann", 4000)
	r.expect("ann leads sort on H100 with 4.000 µs (was 5.000 µs)")
	r.answers(status(302, "Location", "http://127.0.0.1:1/elsewhere"))
	r.rank("sort", "1", "ann", 3000)
	r.expect("ann leads sort on H100 with 3.000 µs (was 4.000 µs)")
	r.rank("sort", "1", "ann", 2000)
	r.expect("ann leads sort on H100 with 2.000 µs (was 3.000 µs)")
}

// What is marked as hacked while its message waits is not posted again.
func TestAHackIsNotAnnounced(t *testing.T) {
	r := newRig(t, servertest.SQLite(t))
	hack := r.rank("sort", "1", "ann", 5000)
	r.answers(func(w http.ResponseWriter) {
		if err := r.store.MarkHacked(context.Background(), hack, "no"); err != nil {
			t.Error(err)
		}
		w.WriteHeader(500)
	})
	r.start()
	r.expect("ann leads sort on H100 with 5.000 µs")
	r.rank("sort", "2", "bob", 6000)
	r.expect("bob leads sort on H100 with 6.000 µs")
}

// A message to nobody is given up, and stops with the server.
func TestGivingUp(t *testing.T) {
	s := servertest.SQLite(t)
	r := newRig(t, s)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	r.rank("sort", "1", "ann", 5000)
	var log bytes.Buffer
	given := make(chan struct{}, 1)
	a, err := New(Options{Store: s, URL: gone.URL + secret, Settle: time.Millisecond, Pause: time.Millisecond, GiveUp: 20 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(io.MultiWriter(&log, tell(given)), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx)
	}()
	<-given
	stop()
	<-done
	if text := log.String(); !strings.Contains(text, "given up") || strings.Contains(text, "hush") {
		t.Errorf("the log is %s", text)
	}
}

type tell chan struct{}

func (c tell) Write(b []byte) (int, error) {
	select {
	case c <- struct{}{}:
	default:
	}
	return len(b), nil
}

func TestForms(t *testing.T) {
	leader := store.Leader{UserID: "7", Score: 1.5, Rank: 1, Tied: true}
	if got, want := slack.words(line{board: "a_b", gpu: "H100_BK", leader: leader}), "user 7 shares the lead of a_b on H100_BK with 1500000.000 µs"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	leader = store.Leader{UserID: "7", User: "<!channel> & *bold*", Score: 0.25, Rank: 2}
	body, err := slack.encode(slack.words(line{board: "b", gpu: "H100_BK", leader: leader}))
	want := `{"mrkdwn":false,"text":"\u0026lt;!channel\u0026gt; \u0026amp; *bold* is second on b on H100_BK with 250000.000 µs","unfurl_links":false,"unfurl_media":false}`
	if err != nil || string(body) != want {
		t.Errorf("got %s, %v; want %s", body, err, want)
	}
	leader.User = "_" + strings.Repeat("*", 100)
	body, err = discord.encode(discord.words(line{board: "b", gpu: "H100_BK", leader: leader}))
	want = `{"allowed_mentions":{"parse":[]},"content":"\\_` + strings.Repeat(`\\*`, 20)
	if err != nil || !strings.HasPrefix(string(body), want) || !strings.HasSuffix(string(body), ` is second on b on H100\\_BK with 250000.000 µs","flags":4}`) || len(body) > 300 {
		t.Errorf("got %s, %v; want %s", body, err, want)
	}
	many := make([]line, 100)
	for i := range many {
		many[i] = line{board: "b", gpu: "H100_BK", leader: leader}
	}
	message, n := discord.message(many)
	if len(message) > 2000 || n < 5 || strings.Count(message, "\n") != n-1 {
		t.Errorf("a message of %d bytes has %d lines and says %d", len(message), strings.Count(message, "\n")+1, n)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, url := range []string{"", "hush", "ftp://hush.example/x", "http://hush.example/x", "https:///hush", "https://%zz/hush"} {
		if _, err := New(Options{URL: url}); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("New with %q: %v", url, err)
		}
	}
	for url, want := range map[string]int{"https://hooks.slack.com/services/x": slack.limit, "https://discord.com/api/webhooks/1/x": discord.limit, "https://notslack.com/x": discord.limit} {
		if a, err := New(Options{URL: url}); err != nil || a.form.limit != want {
			t.Errorf("New with %q: %v, want the form with limit %d", url, err, want)
		}
	}
}
