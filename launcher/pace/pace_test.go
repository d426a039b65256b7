package pace

import (
	"testing"
	"time"
)

// A bucket that is always asked admits its burst and then its steady rate.
func TestBucketAdmitsBurstAndSteadyRate(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b, end, sent := NewBucket(now), now.Add(time.Hour), 0
	for now.Before(end) {
		if wait := b.Wait(now); wait > 0 {
			now = now.Add(wait)
			continue
		}
		b.Spend(now)
		sent++
	}
	if want := Steady(DefaultLimit) + int(burst(DefaultLimit)); sent < want-1 || sent > want+1 {
		t.Errorf("%d requests in an hour, want %d", sent, want)
	}
}

func TestOneTurnInEightIsTheLeasts(t *testing.T) {
	var turns Turns
	least := 0
	for range 80 {
		if turns.Least() {
			least++
		}
	}
	if least != 10 {
		t.Errorf("%d of 80 turns are the least use's, want 10", least)
	}
}
