package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
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
			r, err := f.client().Submit(t.Context(), submission())
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
			if b.probes > 2 && b.state != "canceled" {
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
	r, err := f.client().Submit(t.Context(), submission())
	if err != nil {
		t.Fatal(err)
	}
	if r.Build != 1 || len(f.builds) != 2 || f.builds[1].state != "canceled" {
		t.Errorf("got build %d of %d, the second %s; want the first, the second canceled", r.Build, len(f.builds), f.builds[1].state)
	}
}

// When nobody can say whether there is a build, a second one is not made.
func TestNoSecondCreateWithoutALookup(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		f.fault = func(w http.ResponseWriter, r *http.Request) bool {
			return fail(w, http.StatusServiceUnavailable, `{"message":"maintenance"}`)
		}
		start := time.Now()
		s := submission()
		s.QueueTimeout = 10 * time.Minute
		_, err := f.client().Submit(t.Context(), s)
		var uncertain *UncertainError
		if !errors.As(err, &uncertain) || f.count("POST") != 1 || !strings.Contains(err.Error(), "unknown") || !strings.Contains(err.Error(), "may be left") {
			t.Errorf("got %v after %d creates, want one create and that the outcome is unknown", err, f.count("POST"))
		}
		if took := time.Since(start); took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("gave up after %s, want the 10 minutes it was given", took)
		}
	})
}

// A build may show in listings long after it was made.
func TestUncertainCreateWaitsForTheListing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		late   time.Duration
		builds int
	}{{defaultListingDelay - 2*time.Second, 1}, {defaultListingDelay + 10*time.Second, 2}} {
		bubble(t, func(t *testing.T, f *fake) {
			begun := time.Now()
			f.onCreate = func(b *fakeBuild) {
				b.state = "running"
				b.hidden = func(url.Values) bool { return time.Since(begun) < tt.late }
				b.script = func(b *fakeBuild) {
					if time.Since(begun) > 2*time.Minute && b.number == tt.builds && b.state == "running" {
						b.finish("passed")
					}
				}
			}
			onCreates(f, func(w http.ResponseWriter, r *http.Request) bool {
				f.create(nopWriter{}, r)
				return fail(w, http.StatusBadGateway, "")
			})
			r, err := f.client().Submit(t.Context(), submission())
			if err != nil {
				t.Fatal(err)
			}
			if len(f.builds) != tt.builds {
				t.Errorf("shown after %s: got %d builds, want %d", tt.late, len(f.builds), tt.builds)
			}
			if r.Result.RunID != r.RunID {
				t.Errorf("got the result of run %s", r.Result.RunID)
			}
			for _, b := range f.builds[:tt.builds-1] {
				if b.state != "canceled" {
					t.Errorf("shown after %s: build %d is %s, want it cancelled beside build %d", tt.late, b.number, b.state, tt.builds)
				}
			}
		})
	}
}

func TestLookupTrustsOnlyTheWholeRunID(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.fault = func(w http.ResponseWriter, r *http.Request) bool { // a filter that matches parts
		json.NewEncoder(w).Encode([]any{map[string]any{"number": 9, "meta_data": map[string]any{"run_id": "sub-1-more", "flag": true}}})
		return true
	}
	got, err := f.client().lookup(t.Context(), "sub-1", time.Now())
	if err != nil || len(got) != 0 {
		t.Errorf("lookup: got %v, %v, want none", got, err)
	}
}

func TestConnectionThatCannotBeMadeIsNoBuild(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.client()
	f.hangUp()
	_, err := c.Submit(t.Context(), submission())
	if err == nil || strings.Contains(err.Error(), "unknown") || c.Calls().Lookups != 0 {
		t.Errorf("Submit: got %v after %d lookups, want a plain error", err, c.Calls().Lookups)
	}
}

func TestContextEndWhileCreatingCancelsWhatWasMade(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	ctx, stop := context.WithCancel(t.Context())
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		f.create(nopWriter{}, r)
		stop()
		<-r.Context().Done()
		return true
	}
	_, err := f.client().Submit(ctx, submission())
	if !errors.Is(err, context.Canceled) || len(f.builds) != 1 || f.builds[0].state != "canceled" {
		t.Errorf("Submit: got %v and builds %v, want one, canceled", err, f.builds)
	}
}

type nopWriter struct{}

func (nopWriter) Header() http.Header { return http.Header{} }

func (nopWriter) Write(p []byte) (int, error) { return len(p), nil }

func (nopWriter) WriteHeader(int) {}
