package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// onCreates makes faults answer the first creates, one each; the last may be
// nil for an ordinary answer. Each fault decides whether the build is made.
func onCreates(f *fake, faults ...func(http.ResponseWriter, *http.Request) bool) {
	var n atomic.Int32
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		i := int(n.Add(1)) - 1
		return i < len(faults) && faults[i] != nil && faults[i](w, r)
	}
}

func TestUncertainCreateLeavesOneBuild(t *testing.T) {
	t.Parallel()
	type fault = func(*fake) func(http.ResponseWriter, *http.Request) bool
	madeAnd := func(then func(http.ResponseWriter, *http.Request) bool) fault {
		return func(f *fake) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				f.create(nopWriter{}, r)
				return then(w, r)
			}
		}
	}
	lostAnd := func(then func(http.ResponseWriter, *http.Request) bool) fault {
		return func(*fake) func(http.ResponseWriter, *http.Request) bool { return then }
	}
	badGateway := func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		io.WriteString(w, "<html>502</html>")
		return true
	}
	cutBody := func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", "4000")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"id":"0190","numb`)
		return true
	}
	for _, tt := range []struct {
		name    string
		faults  []fault
		creates int // POSTs
	}{
		{"made, connection dropped", []fault{madeAnd(drop)}, 1},
		{"made, HTML 502", []fault{madeAnd(badGateway)}, 1},
		{"made, body cut", []fault{madeAnd(cutBody)}, 1},
		{"not made, connection dropped", []fault{lostAnd(drop)}, 2},
		{"not made, HTML 502", []fault{lostAnd(badGateway)}, 2},
		{"not made, then made and dropped", []fault{lostAnd(badGateway), madeAnd(drop)}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			f.onCreate = func(b *fakeBuild) { b.finish("passed") }
			var faults []func(http.ResponseWriter, *http.Request) bool
			for _, fault := range tt.faults {
				faults = append(faults, fault(f))
			}
			onCreates(f, faults...)
			r, err := f.client().Submit(testContext(t), submission())
			if err != nil {
				t.Fatal(err)
			}
			if len(f.builds) != 1 || f.builds[0].meta["run_id"] != r.RunID {
				t.Errorf("got %d builds, want exactly one, of run %s", len(f.builds), r.RunID)
			}
			if got := f.count("POST"); got != tt.creates {
				t.Errorf("got %d creates, want %d", got, tt.creates)
			}
		})
	}
}

// The first build shows in listings only after the second was made.
func TestLateDoubleIsCancelled(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.onCreate = func(b *fakeBuild) {
		b.script = func(b *fakeBuild) {
			if b.looks > 2 {
				b.finish("passed")
			}
		}
	}
	posts := 0
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPost:
			if posts++; posts == 1 {
				f.create(nopWriter{}, r)
				drop(w, r)
			}
		case posts == 1 && strings.Contains(r.URL.RawQuery, "run_id"):
			return fail(w, 200, "[]")
		}
		return false
	}
	r, err := f.client().Submit(testContext(t), submission())
	if err != nil {
		t.Fatal(err)
	}
	if r.Build != 1 || len(f.builds) != 2 || f.builds[1].state != "canceled" {
		t.Errorf("got build %d of %d, the second %s; want the first, the second canceled", r.Build, len(f.builds), f.builds[1].state)
	}
}

// When nobody can say whether there is a build, a second one is not made.
func TestNoSecondCreateWithoutALook(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		return fail(w, http.StatusServiceUnavailable, `{"message":"maintenance"}`)
	}
	_, err := f.client().Submit(testContext(t), submission())
	if err == nil || f.count("POST") != 1 || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("got %v after %d creates, want one create and that the outcome is unknown", err, f.count("POST"))
	}
}

func TestRefusalsAreFinal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status     int
		body, want string
	}{
		{401, `{"message":"Unauthorized"}`, "401 Unauthorized: Unauthorized"},
		{403, `{"message":"Forbidden"}`, "403 Forbidden: Forbidden"},
		{404, `{"message":"No pipeline found"}`, "No pipeline found"},
		{422, `{"message":"Commit is missing"}`, "Commit is missing"},
	} {
		f := newFake(t)
		f.fault = func(w http.ResponseWriter, r *http.Request) bool { return fail(w, tt.status, tt.body) }
		_, err := f.client().Submit(testContext(t), submission())
		var api *APIError
		if !errors.As(err, &api) || api.Status != tt.status || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d: got %v, want %q", tt.status, err, tt.want)
		}
		if n := f.count(""); n != 1 {
			t.Errorf("%d: got %d requests, want 1", tt.status, n)
		}
	}
}

func TestRateLimitWaitsForTheScopeInTheBody(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.onCreate = func(b *fakeBuild) { b.finish("passed") }
	onCreates(f, func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("RateLimit-Reset", "3") // the organization's: not the one that is used up
		w.Header().Set("RateLimit-Limit", "200")
		w.Header().Set("RateLimit-Remaining", "150")
		return fail(w, 429, `{"message":"slow down","scope":"rest_user","limit":50,"current":55,"reset":42}`)
	})
	c := f.client()
	var pauses []time.Duration
	c.pause = func(ctx context.Context, d time.Duration) error {
		pauses = append(pauses, d)
		return ctx.Err()
	}
	if _, err := c.Submit(testContext(t), submission()); err != nil {
		t.Fatal(err)
	}
	if len(pauses) == 0 || pauses[0] < 43*time.Second || pauses[0] > 47*time.Second {
		t.Errorf("pauses: got %v, want 42 s and 1 to 5 s of jitter first", pauses)
	}
	if len(f.builds) != 1 {
		t.Errorf("got %d builds, want 1", len(f.builds))
	}
}

func TestRateLimitEndsAfterFourAttempts(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		f := newFake(t)
		f.fault = func(w http.ResponseWriter, r *http.Request) bool {
			return fail(w, 429, `{"scope":"rest","limit":200,"current":201,"reset":900}`)
		}
		c := f.client()
		var pauses []time.Duration
		c.pause = func(ctx context.Context, d time.Duration) error {
			pauses = append(pauses, d)
			return ctx.Err()
		}
		_, err := c.do(testContext(t), method, c.path+"/builds", nil, nil)
		var limited *RateLimitError
		if !errors.As(err, &limited) || limited.Scope != "rest" || limited.Reset != 900*time.Second {
			t.Errorf("%s: got %v, want a RateLimitError of scope rest", method, err)
		}
		if n := f.count(method); n != maxAttempts {
			t.Errorf("%s: got %d requests, want %d", method, n, maxAttempts)
		}
		for _, d := range pauses {
			if d > maxRateWait {
				t.Errorf("%s: paused %s, want at most %s", method, d, maxRateWait)
			}
		}
	}
}

func TestTroubleWhilePollingIsWaitedOut(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.onCreate = passes
	var gets atomic.Int32
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		switch gets.Add(1) {
		case 1:
			return fail(w, 500, `{"message":"oops"}`)
		case 3: // the second artifact list will be cut instead
			w.Header().Set("Content-Length", "900")
			io.WriteString(w, `{"number":1,`)
			return true
		}
		return false
	}
	if _, err := f.client().Submit(testContext(t), submission()); err != nil {
		t.Errorf("Submit: got %v, want to wait out a 500 and a cut body", err)
	}
}

func TestAnswersThatAreNotJSON(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.client()
	for _, tt := range []struct {
		name  string
		fault func(http.ResponseWriter, *http.Request) bool
		want  string
	}{
		{"HTML with 200", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			io.WriteString(w, "<html>log in</html>")
			return true
		}, "200 OK: the body is text/html; charset=utf-8, want JSON"},
		{"HTML with 502", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(502)
			return true
		}, "502 Bad Gateway: no message, the body is text/html"},
		{"cut", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"number": 4`)
			return true
		}, "the body broke off or is no JSON after 12 bytes"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
			return true
		}, "302 Found"},
	} {
		f.fault = tt.fault
		_, err := c.build(testContext(t), 1)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestDownloadFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		setup func(*fake, *fakeBuild)
		want  string // in the error; "": none
		links int    // requests for a link
	}{
		{"expired once", func(f *fake, b *fakeBuild) { f.expired = 1 }, "", 2},
		{"expired always", func(f *fake, b *fakeBuild) { f.expired = 99 }, "got 403 Forbidden, want 200", fetchAttempts},
		{"wrong hash", func(f *fake, b *fakeBuild) { b.artifacts[0].sum = strings.Repeat("0", 40) }, "want " + strings.Repeat("0", 40), fetchAttempts},
		{"cut on the way", func(f *fake, b *fakeBuild) { f.corrupt = func(d []byte) []byte { return d[:len(d)-1] } }, "bytes, want", fetchAttempts},
		{"larger than listed", func(f *fake, b *fakeBuild) { f.corrupt = func(d []byte) []byte { return append(bytes.Clone(d), ' ') } }, "more than the", fetchAttempts},
		{"oversize", func(f *fake, b *fakeBuild) { b.artifacts[0].size = 1 << 40 }, "want at most", 0},
		{"link elsewhere", func(f *fake, b *fakeBuild) { b.artifacts[0].url = f.store.URL + "/1/art-0" }, "the token goes nowhere else", 0},
		{"link on the same host, other port", func(f *fake, b *fakeBuild) {
			u, _ := url.Parse(f.store.URL)
			b.artifacts[0].url = "http://127.0.0.1:" + u.Port() + "/1/art-0"
		}, "the token goes nowhere else", 0},
		{"link by another scheme", func(f *fake, b *fakeBuild) {
			b.artifacts[0].url = strings.Replace(f.api.URL, "http://", "https://", 1) + "/x"
		}, "the token goes nowhere else", 0},
		{"link with a user", func(f *fake, b *fakeBuild) {
			b.artifacts[0].url = strings.Replace(f.api.URL, "http://", "http://me@", 1) + "/x"
		}, "the token goes nowhere else", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			f.onCreate = func(b *fakeBuild) {
				b.finish("passed")
				tt.setup(f, b)
			}
			_, err := f.client().Submit(testContext(t), submission())
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("Submit: got %v, want the result", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("Submit: got %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret-link") {
				t.Errorf("Submit: the error quotes a signed link: %v", err)
			}
			if got := f.count("/download"); got != tt.links {
				t.Errorf("got %d requests for a link, want %d", got, tt.links)
			}
		})
	}
}

// Under both names of the store, and at each step of a chain of redirects, the
// fake fails the test when it sees the token.
func TestTokenStaysWithTheAPI(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"localhost", "127.0.0.1"} {
		f := newFake(t)
		f.onCreate = func(b *fakeBuild) { b.finish("passed") }
		f.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/download") {
				return false
			}
			u, _ := url.Parse(f.store.URL)
			http.Redirect(w, r, "http://"+host+":"+u.Port()+"/1/art-0", http.StatusFound)
			return true
		}
		if _, err := f.client().Submit(testContext(t), submission()); err != nil {
			t.Errorf("store on %s: %v", host, err)
		}
	}
}

func TestListFollowsPages(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.perPage = 7
	for i := range 23 {
		f.builds = append(f.builds, &fakeBuild{number: i + 1, state: "running", meta: map[string]string{"run_id": "x"}})
	}
	c := f.client()
	got, err := c.list(testContext(t), url.Values{"exclude_pipeline": {"true"}})
	if err != nil || len(got) != 23 || f.count("GET") != 4 {
		t.Errorf("list: got %d builds, %v, in %d requests, want 23 in 4", len(got), err, f.count("GET"))
	}
}

func TestLookupTrustsOnlyTheWholeRunID(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.fault = func(w http.ResponseWriter, r *http.Request) bool { // a filter that matches parts
		json.NewEncoder(w).Encode([]any{map[string]any{"number": 9, "meta_data": map[string]any{"run_id": "sub-1-more", "flag": true}}})
		return true
	}
	got, err := f.client().lookup(testContext(t), "sub-1", time.Now())
	if err != nil || len(got) != 0 {
		t.Errorf("lookup: got %v, %v, want none", got, err)
	}
}

func TestStrangeIdsMakeNoPath(t *testing.T) {
	t.Parallel()
	c := newFake(t).client()
	for _, id := range []string{"", "../x", "a/b", "a?b", "a#b", "%2e", strings.Repeat("a", 101)} {
		if path, err := c.buildPath(1, "jobs", id); err == nil {
			t.Errorf("buildPath(%q): got %q, want an error", id, path)
		}
	}
	if _, err := c.buildPath(0); err == nil {
		t.Error("buildPath(0): got no error")
	}
}

func TestNewChecksItsOptions(t *testing.T) {
	t.Parallel()
	good := Options{BaseURL: "https://api.buildkite.com/", Token: "t", Org: "gpu-mode", Pipeline: "kernelbot"}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Options){
		"no API token":  func(o *Options) { o.Token = "" },
		"organization":  func(o *Options) { o.Org = "a/b" },
		"pipeline":      func(o *Options) { o.Pipeline = "../x" },
		"want https":    func(o *Options) { o.BaseURL = "http://api.example.com/" },
		"final v2/":     func(o *Options) { o.BaseURL = "https://api.buildkite.com/v2" },
		"scheme, host":  func(o *Options) { o.BaseURL = "https://me:pw@api.buildkite.com/" },
		"path only, as": func(o *Options) { o.BaseURL = "api.buildkite.com" },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: got %v, want %q", err, want)
		}
	}
	c, err := New(Options{BaseURL: "http://127.0.0.1:1/api", Token: "t", Org: "o", Pipeline: "p"})
	if err != nil || c.base.Path != "/api/" {
		t.Errorf("New with a path: got %v, %v, want /api/", c.base, err)
	}
}

func TestConnectionThatCannotBeMadeIsNoBuild(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.client()
	f.api.Close()
	_, err := c.Submit(testContext(t), submission())
	if err == nil || strings.Contains(err.Error(), "unknown") || c.Calls().Lookups != 0 {
		t.Errorf("Submit: got %v after %d lookups, want a plain error", err, c.Calls().Lookups)
	}
}

func TestQuota(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	q := newQuota(func() time.Time { return now })
	takeAll := func() (n int) {
		for q.take() == 0 {
			n++
		}
		return n
	}
	if got := takeAll(); got != 40 {
		t.Errorf("burst with the default limit of 50: got %d, want 40", got)
	}
	if got := q.take(); got != quotaWindow {
		t.Errorf("wait after the burst: got %s, want %s", got, quotaWindow)
	}
	if got := q.pollFloor(1); got < 10*time.Second {
		t.Errorf("poll floor with nothing left: got %s, want 10 s or more", got)
	}
	now = now.Add(quotaWindow)
	h := http.Header{}
	set := func(prefix, remaining, limit, reset string) {
		h.Set(prefix+"Remaining", remaining)
		h.Set(prefix+"Limit", limit)
		h.Set(prefix+"Reset", reset)
	}
	set("RateLimit-", "190", "200", "30")
	set("RateLimit-User-", "95", "100", "30")
	q.see(h)
	if got := q.pollFloor(1); got != 0 {
		t.Errorf("poll floor with all left: got %s, want 0", got)
	}
	if got := takeAll(); got != 80 {
		t.Errorf("burst with limits 200 and 100: got %d, want 80", got)
	}
	q.overdraw()
	if got := q.take(); got != quotaWindow {
		t.Errorf("wait after one token too many: got %s, want %s", got, quotaWindow)
	}
	now = now.Add(quotaWindow)
	set("RateLimit-", "0", "200", "20")
	q.see(h)
	if got := q.take(); got != 20*time.Second {
		t.Errorf("wait when others used the quota up: got %s, want 20 s", got)
	}
}

func TestCancellingDoesNotWaitForTheQuota(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.builds = []*fakeBuild{{number: 1, state: "running"}}
	c := f.client()
	for c.quota.take() == 0 {
	}
	c.pause = func(context.Context, time.Duration) error { return errors.New("waited") }
	if err := c.Cancel(testContext(t), 1); err != nil || f.builds[0].state != "canceled" {
		t.Errorf("Cancel with the quota used up: got %v, build %s", err, f.builds[0].state)
	}
}

func TestCommandAtReadsTheLogsTimeStamps(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := &fakeBuild{number: 1, state: "passed"}
	f.builds = []*fakeBuild{b}
	b.log = "\x1b_bk;t=1795285000100\x07~~~ Preparing working directory\r\n\x1b_bk;t=1795285000123\x07~~~ Running commands\r\n\x1b_bk;t=1795285000200\x07hello\r\n"
	at, err := f.client().CommandAt(testContext(t), 1, "job-0")
	if want := time.UnixMilli(1795285000123); err != nil || !at.Equal(want) {
		t.Errorf("CommandAt = %v, %v, want %v", at, err, want)
	}
	b.log = "no stamps"
	if at, err := f.client().CommandAt(testContext(t), 1, "job-0"); err == nil {
		t.Errorf("CommandAt of a log without stamps = %v, want an error", at)
	}
}

func TestPollPause(t *testing.T) {
	t.Parallel()
	var at time.Duration
	var polls []time.Duration
	for at < 5*time.Minute {
		at += pollPause(at)
		polls = append(polls, at)
	}
	within := func(d time.Duration) int {
		i, _ := slices.BinarySearch(polls, d)
		return i
	}
	t.Logf("polls within 3 s, 10 s, 60 s, 5 min: %d, %d, %d, %d", within(3*time.Second), within(10*time.Second), within(time.Minute), len(polls))
	if within(3*time.Second) > 20 || len(polls) > 100 {
		t.Errorf("polls: got %d in 3 s and %d in 5 min, want at most 20 and 100", within(3*time.Second), len(polls))
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"\x1b[31mred\x1b[0m\r\n":       "red",
		"\x1b_bk;t=123\x07~~~ group\n": "~~~ group",
		"\x1b]1339;url='x'\x07a\tb":    "a\tb",
		"bad \xff byte\x00":            "bad \uFFFD byte",
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q): got %q, want %q", in, got, want)
		}
	}
}
