package store

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Boards say exactly how many submissions they have, with more of them than are
// counted each time, whatever is deleted here, and elsewhere a minute later.
func TestSubmissionsAreCounted(t *testing.T) {
	bothShared(t, func(t *testing.T, s, other *Store) {
		ctx := context.Background()
		now := time.Now()
		var mu sync.Mutex
		other.now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
		save(t, s, testBoard("a"), testBoard("b"))
		submit := func(board string) {
			t.Helper()
			if _, err := s.Accept(ctx, submission(board, "H100", "7")); err != nil {
				t.Fatal(err)
			}
		}
		submit("a")
		expect := func(what string, of *Store, a, b int) {
			t.Helper()
			boards, err := of.Boards(ctx)
			if err != nil || len(boards) != 2 || boards[0].Submissions != a || boards[1].Submissions != b {
				t.Errorf("%s: Boards = %+v, %v; want %d and %d submissions", what, boards, err, a, b)
			}
			if one, err := of.Board(ctx, "a"); err != nil || one.Submissions != a {
				t.Errorf("%s: Board(a) = %+v, %v; want %d submissions", what, one, err, a)
			}
		}
		expect("one", other, 1, 0)
		err := s.change(ctx, "copying", func(t *tx) {
			for range countMargin + 100 {
				t.exec(`INSERT INTO lb.submission (leaderboard_id, file_name, user_id, code_id, submission_time) SELECT leaderboard_id, file_name, user_id, code_id, submission_time FROM lb.submission WHERE id = 1`)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range []*Store{s, other} {
			expect("many", of, countMargin+101, 0)
		}
		submit("b")
		for _, of := range []*Store{s, other} {
			expect("one more", of, countMargin+101, 1)
		}
		mu.Lock()
		now = now.Add(2 * countAge) // it is counted anew
		mu.Unlock()
		expect("later", other, countMargin+101, 1)
		if err := s.Delete(ctx, 1); err != nil {
			t.Fatal(err)
		}
		expect("after a deletion", s, countMargin+100, 1)
		mu.Lock()
		now = now.Add(2 * countAge)
		mu.Unlock()
		var wait sync.WaitGroup
		for range 8 { // several at once, of which one counts
			wait.Go(func() {
				if _, err := other.Boards(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		expect("after a deletion elsewhere", other, countMargin+100, 1)
	})
}
