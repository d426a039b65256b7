package launcher

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"
)

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
	if err := c.Cancel(t.Context(), 1); err != nil || f.builds[0].state != "canceled" {
		t.Errorf("Cancel with the quota used up: got %v, build %s", err, f.builds[0].state)
	}
}
