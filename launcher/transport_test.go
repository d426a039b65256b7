package launcher

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"
)

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
	if _, err := c.Submit(t.Context(), submission()); err != nil {
		t.Fatal(err)
	}
	if len(pauses) == 0 || pauses[0] < 43*time.Second || pauses[0] > 47*time.Second {
		t.Errorf("pauses: got %v, want 42 s and 1 to 5 s of jitter first", pauses)
	}
	if len(f.builds) != 1 {
		t.Errorf("got %d builds, want 1", len(f.builds))
	}
}

// However often the answer is 429, it is no end, until the caller's time is over.
func TestManyRateLimitsAreNoEnd(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		bubble(t, func(t *testing.T, f *fake) {
			left := 9
			f.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if left--; left < 0 {
					return fail(w, 200, "[]")
				}
				return fail(w, 429, `{"scope":"rest","limit":200,"current":201,"reset":900}`)
			}
			c := f.client()
			start := time.Now()
			if _, err := c.do(t.Context(), method, c.path+"/builds", nil, nil); err != nil {
				t.Errorf("%s: got %v after nine 429", method, err)
			}
			if took := time.Since(start); took != 9*maxRateWait {
				t.Errorf("%s: took %s, want 9 pauses of %s", method, took, maxRateWait)
			}
			left = 1 << 30
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
			defer stop()
			_, err := c.do(ctx, method, c.path+"/builds", nil, nil)
			var limited *RateLimitError
			if !errors.As(err, &limited) || limited.Scope != "rest" || limited.Reset != 900*time.Second {
				t.Errorf("%s: got %v, want a RateLimitError of scope rest", method, err)
			}
		})
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		for _, date := range []bool{false, true} {
			bubble(t, func(t *testing.T, f *fake) {
				f.builds = []*fakeBuild{{number: 1, state: "passed"}}
				asked := 0
				f.fault = func(w http.ResponseWriter, r *http.Request) bool {
					if asked++; asked > 1 {
						return false
					}
					w.Header().Set("Retry-After", "200")
					if date {
						w.Header().Set("Retry-After", time.Now().Add(200*time.Second).UTC().Format(http.TimeFormat))
					}
					return fail(w, status, `{"message":"later"}`)
				}
				start := time.Now()
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				if _, err := f.client().Build(ctx, 1); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took < 199*time.Second || took > 206*time.Second {
					t.Errorf("%d, date %t: asked again after %s, want 200 s", status, date, took)
				}
			})
		}
	}
}

// A 429 of somebody between here and Buildkite names no scope, and is told so.
func TestRateLimitOfNobody(t *testing.T) {
	t.Parallel()
	e := &RateLimitError{Reset: time.Minute}
	if got, want := e.Error(), "a rate limit is used up (429), next try in 1m0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
