package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/database"
)

// pollers is how many clients ask at once, as the design's budget has it.
const pollers = 24

// synthetic fills a store with about n runs in real proportions: 30 % of the
// submissions are ranked and have 6 runs, the others 1; 40 boards, of which the
// hottest has 15 %; 2,000 users; rows of about 1.7 kB. It returns the number of
// submissions.
func synthetic(b *testing.B, s *Store, n int) int {
	b.Helper()
	ctx := context.Background()
	var boards []Board
	for i := range 40 {
		boards = append(boards, testBoard(fmt.Sprintf("board%d", i)))
	}
	save(b, s, boards...)
	rnd := rand.New(rand.NewPCG(5, 6))
	insert := func(table, columns string, rows [][]any) {
		for chunk := range slices.Chunk(rows, 500) {
			var values []string
			var args []any
			for _, row := range chunk {
				placeholders := make([]string, len(row))
				for i := range row {
					placeholders[i] = "$" + strconv.Itoa(len(args)+i+1)
				}
				values, args = append(values, "("+strings.Join(placeholders, ",")+")"), append(args, row...)
			}
			if _, err := s.db.Exec(ctx, s.db.Write, "INSERT INTO "+table+" ("+columns+") VALUES "+strings.Join(values, ","), args...); err != nil {
				b.Fatal(err)
			}
		}
	}
	var users [][]any
	for i := range 2000 {
		users = append(users, []any{fmt.Sprint(1000 + i), fmt.Sprintf("user%d", i)})
	}
	insert("lb.user_info", "id, user_name", users)
	code, err := s.keepCodeForBench(ctx)
	if err != nil {
		b.Fatal(err)
	}
	text := `{"stdout": "` + strings.Repeat("x", 1600) + `"}`
	begin := time.Now().Add(-1000 * time.Hour)
	var subs, runs [][]any
	count, made := 0, 0
	flush := func() {
		insert("lb.submission", "leaderboard_id, file_name, user_id, code_id, submission_time, done, mode_category", subs)
		insert("lb.runs", "submission_id, start_time, end_time, mode, secret, runner, score, passed, meta, result, system_info", runs)
		subs, runs = nil, nil
	}
	for made < n {
		count++
		board := 1
		if rnd.IntN(100) >= 15 {
			board = 2 + rnd.IntN(39)
		}
		ranked := rnd.IntN(10) < 3
		mode := schema.ModeTest
		if ranked {
			mode = schema.ModeLeaderboard
		}
		at := database.Stamp(begin.Add(time.Duration(count) * time.Second))
		subs = append(subs, []any{board, "submission.py", fmt.Sprint(1000 + rnd.IntN(2000)), code, at, true, mode})
		run := func(mode string, secret bool, score any) {
			runs = append(runs, []any{count, at, at, mode, secret, "H100", score, true, text, `{"check": "pass"}`, "{}"})
			made++
		}
		run("test", false, nil)
		if ranked {
			run("benchmark", false, nil)
			run("leaderboard", false, strconv.FormatFloat(1e-3*(1+rnd.Float64()), 'g', -1, 64))
			run("test", true, nil)
			run("benchmark", true, nil)
			run("leaderboard", true, nil)
		}
		if len(subs) >= 5000 {
			flush()
		}
	}
	flush()
	began := time.Now()
	if _, err := s.Rebuild(ctx); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d runs of %d submissions, rebuilt in %v", made, count, time.Since(began).Round(time.Millisecond))
	if s.db.Kind == database.Postgres {
		if _, err := s.db.Write.ExecContext(ctx, "ANALYZE"); err != nil {
			b.Fatal(err)
		}
	}
	return count
}

func (s *Store) keepCodeForBench(ctx context.Context) (id int64, err error) {
	err = s.change(ctx, "", func(t *tx) { id = t.keepCode([]byte("def custom_kernel(x): return x\n")) })
	return id, err
}

// BenchmarkStore measures what clients wait for, 24 of them at once, at 1e5 runs
// (KBGEN_BENCH_RUNS says another number): one poll, the hottest board's first page,
// its whole ranking and its history, a user's own list, the start page, and
// accepting. What a ranking costs once after each change is measured alone.
func BenchmarkStore(b *testing.B) {
	n := 100_000
	if v, err := strconv.Atoi(os.Getenv("KBGEN_BENCH_RUNS")); err == nil && v > 0 {
		n = v
	}
	for _, kind := range []struct {
		name string
		url  func(testing.TB) string
	}{{"sqlite", sqliteURL}, {"postgres", postgresURL}} {
		b.Run(kind.name, func(b *testing.B) {
			ctx := context.Background()
			s := migrated(b, kind.url(b))
			submissions := synthetic(b, s, n)
			b.Run("poll", func(b *testing.B) {
				together(b, func(i int) error {
					_, err := s.Poll(ctx, int64(1+i*7919%submissions))
					return err
				})
			})
			for _, limit := range []int{100, 0} {
				b.Run(map[int]string{100: "board-first-100", 0: "board-whole"}[limit], func(b *testing.B) {
					together(b, func(int) error {
						page, total, err := s.Page(ctx, "board0", "H100", limit, 0)
						if err == nil && (total < 100 || len(page) < 100) {
							err = fmt.Errorf("the board has %d", total)
						}
						return err
					})
				})
			}
			b.Run("board-after-a-change", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					if _, err := s.db.Exec(ctx, s.db.Write, `UPDATE own.board SET version = version + 1`); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
					if _, _, err := s.Page(ctx, "board0", "H100", 100, 0); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("history", func(b *testing.B) {
				together(b, func(int) error {
					steps, err := s.History(ctx, "board0", "H100", "")
					if err == nil && len(steps) < 3 {
						err = fmt.Errorf("the history has %d steps", len(steps))
					}
					return err
				})
			})
			b.Run("own-list", func(b *testing.B) {
				together(b, func(i int) error {
					list, err := s.Submissions(ctx, Query{UserID: fmt.Sprint(1000 + i*7919%2000)})
					if err == nil && len(list) == 0 {
						err = fmt.Errorf("the list has %d", len(list))
					}
					return err
				})
			})
			b.Run("boards", func(b *testing.B) {
				together(b, func(int) error {
					list, err := s.Boards(ctx)
					if err == nil && len(list) != 40 {
						err = fmt.Errorf("the list has %d", len(list))
					}
					return err
				})
			})
			accept := func(i int) error {
				in := submission("board1", "H100", fmt.Sprint(1000+i%2000))
				in.UserName = ""
				in.Code = fmt.Appendf(in.Code, "%d %d", i, time.Now().UnixNano())
				_, err := s.Accept(ctx, in)
				return err
			}
			b.Run("accept", func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					if err := accept(i); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("accept-24", func(b *testing.B) { together(b, accept) })
		})
	}
}

// together lets 24 clients call do, and reports the median and the 95th percentile
// of what one of them waits. Connections are made and statements prepared before.
func together(b *testing.B, do func(i int) error) {
	round(b, 5*pollers, do)
	b.ResetTimer()
	took := round(b, b.N, do)
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms/p95")
}

// round makes n calls and returns what each took.
func round(b *testing.B, n int, do func(i int) error) []time.Duration {
	took := make([]time.Duration, n)
	var wait sync.WaitGroup
	next := make(chan int)
	for range pollers {
		wait.Go(func() {
			for i := range next {
				began := time.Now()
				if err := do(i); err != nil {
					b.Error(err)
				}
				took[i] = time.Since(began)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
	return took
}
