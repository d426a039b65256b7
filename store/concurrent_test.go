package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// Two instances of several writers each, on few users, with rebuilds in between:
// nothing is lost, nothing counts twice, and the standings are what the runs say.
func TestStandingsWithConcurrentWriters(t *testing.T) {
	for _, kind := range []struct {
		name string
		url  func(testing.TB) string
	}{{"SQLite", sqliteURL}, {"PostgreSQL", postgresURL}} {
		t.Run(kind.name, func(t *testing.T) {
			ctx := context.Background()
			url := kind.url(t)
			instances := []*Store{migrated(t, url), migrated(t, url)}
			save(t, instances[0], testBoard("sort"))
			var mu sync.Mutex
			var ids []int64
			accepted, recorded, deleted := 0, 0, 0
			pick := func(rnd *rand.Rand) int64 {
				mu.Lock()
				defer mu.Unlock()
				if len(ids) == 0 {
					return 0
				}
				return ids[rnd.IntN(len(ids))]
			}
			var wait sync.WaitGroup
			for w := range 6 {
				wait.Go(func() {
					s, rnd := instances[w%2], rand.New(rand.NewPCG(7, uint64(w)))
					for range 60 {
						id := pick(rnd)
						var err error
						switch what := rnd.IntN(12); {
						case what < 4:
							var out Accepted
							out, err = s.Accept(ctx, submission("sort", "H100", fmt.Sprint(1+rnd.IntN(3))))
							mu.Lock()
							ids = append(ids, out.ID)
							accepted++
							mu.Unlock()
						case what < 9:
							var claimed []PlannedRun
							claimed, err = s.Claim(ctx, fmt.Sprint(w), 2, nil, time.Hour)
							for _, p := range claimed {
								if err == nil {
									err = s.Creating(ctx, p)
								}
								if err == nil {
									err = s.Renew(ctx, p, time.Hour)
								}
								if err == nil {
									err = s.Record(ctx, p, result(rnd.IntN(6) > 0, float64(100+rnd.IntN(900))), nil)
								}
								// Somebody deleted it or marked it as hacked meanwhile.
								if errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrNotFound) {
									err = nil
								} else if err == nil {
									mu.Lock()
									recorded++
									mu.Unlock()
								}
							}
						case what == 9 && id != 0 && rnd.IntN(3) == 0:
							if err = s.Delete(ctx, id); err == nil {
								mu.Lock()
								deleted++
								mu.Unlock()
							}
						case what == 10 && id != 0:
							err = s.Verify(ctx, id, "H100", true, result(rnd.IntN(2) == 0, 5))
						case what == 11 && rnd.IntN(3) == 0:
							_, err = s.Rebuild(ctx)
						case what == 11 && id != 0 && rnd.IntN(2) == 0:
							err = s.MarkHacked(ctx, id, "x")
						}
						if err != nil && !errors.Is(err, ErrNotFound) {
							t.Errorf("writer %d: %v", w, err)
						}
					}
				})
			}
			wait.Wait()
			s := instances[0]
			if n := count(t, s, "lb.submission"); n != accepted-deleted || deleted == 0 || recorded == 0 {
				t.Errorf("%d submissions, want %d accepted less %d deleted; %d results", n, accepted, deleted, recorded)
			}
			if n := count(t, s, "(SELECT submission_id FROM own.accepted a WHERE NOT EXISTS (SELECT 1 FROM lb.submission_job_status j WHERE j.submission_id = a.submission_id)) x"); n != 0 {
				t.Errorf("%d submissions have no status", n)
			}
			evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, 50) })
			if faults, err := s.Check(ctx); err != nil || len(faults) > 0 {
				t.Errorf("Check says %q, %v", faults, err)
			}
			if n := count(t, s, "(SELECT 1 FROM lb.submission WHERE NOT done) x"); n != 0 {
				t.Errorf("%d submissions are not done at the end", n)
			}
		})
	}
}
