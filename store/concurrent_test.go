package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

// Two instances of several writers each, on few users, with rebuilds in between:
// nothing is lost, nothing counts twice, and the standings are what the runs say.
func TestStandingsWithConcurrentWriters(t *testing.T) { concurrentWriters(t, 15) }

func TestSlowStandingsWithConcurrentWriters(t *testing.T) {
	testenv.NeedSlow(t)
	concurrentWriters(t, 60)
}

// concurrentWriters has each of six writers do so many things.
func concurrentWriters(t *testing.T, steps int) {
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
					for range steps {
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
							err = s.verify(ctx, id, "H100", true, result(rnd.IntN(2) == 0, 5))
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

// A board goes as a whole while others submit to it and record results.
func TestABoardIsDeletedWhileOthersWork(t *testing.T) { deletedWhileOthersWork(t, 1) }

func TestSlowABoardIsDeletedWhileOthersWork(t *testing.T) {
	testenv.NeedSlow(t)
	deletedWhileOthersWork(t, 5)
}

func deletedWhileOthersWork(t *testing.T, rounds int) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		for round := range rounds {
			save(t, s, testBoard("sort"))
			gone := make(chan struct{})
			var work sync.WaitGroup
			var accepted atomic.Int64
			enough := make(chan struct{})
			for w := range 4 {
				work.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-gone:
							return
						default:
						}
						in := submission("sort", "H100", fmt.Sprint(10+w))
						in.Code = fmt.Appendf(in.Code, "%d %d %d", round, w, i)
						_, err := s.Accept(ctx, in)
						var refused *Refusal
						if errors.As(err, &refused) && refused.Why == UnknownBoard {
							continue
						} else if err != nil {
							t.Errorf("Accept: %v", err)
							return
						}
						if accepted.Add(1) == 20 {
							close(enough)
						}
						claimed, err := s.Claim(ctx, fmt.Sprint(w), 2, nil, time.Hour)
						for _, p := range claimed {
							if err == nil {
								err = s.Record(ctx, p, result(true, 100), []byte("{}"))
							}
							if errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrNotFound) {
								err = nil
							}
						}
						if err != nil {
							t.Errorf("recording: %v", err)
							return
						}
					}
				})
			}
			<-enough
			if n, err := s.DeleteBoard(ctx, "sort", true); err != nil || n < 20 {
				t.Errorf("DeleteBoard = %d, %v", n, err)
			}
			close(gone)
			work.Wait()
			for _, table := range []string{"lb.leaderboard", "lb.submission", "lb.runs", "own.planned_run", "own.verdict", "own.standing", "own.report", "own.board"} {
				if n := count(t, s, table); n != 0 {
					t.Errorf("%d rows are left in %s", n, table)
				}
			}
		}
	})
}
