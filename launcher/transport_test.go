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
		_, err := c.do(t.Context(), method, c.path+"/builds", nil, nil)
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
