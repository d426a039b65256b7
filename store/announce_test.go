package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

// updates is what Announce says, in words.
func updates(t *testing.T, s *Store, board string) (said string) {
	t.Helper()
	changes, err := s.Announce(context.Background(), board)
	if err != nil {
		t.Fatal(err)
	}
	list := func(leaders []Leader) (words string) {
		for _, l := range leaders {
			words += fmt.Sprintf(" %s %.0f", l.User, l.Score*1e9)
			if l.Gone {
				words += " gone"
			}
		}
		return words
	}
	for _, c := range changes {
		said += fmt.Sprintf("%s:%s <%s;", c.GPU, list(c.Now), list(c.Before))
	}
	return said
}

// Each change among the first three is told once, to one of the instances.
func TestAnnounce(t *testing.T) {
	bothShared(t, func(t *testing.T, s, other *Store) {
		ctx := context.Background()
		rank := func(board, gpu, user string, ns float64) int64 {
			t.Helper()
			in := submission(board, gpu, user)
			in.Code, in.AnyTime = fmt.Append(in.Code, ns), true
			out, err := s.Accept(ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, ns) })
			return out.ID
		}
		expect := func(what, board, want string) {
			t.Helper()
			if got := updates(t, s, board) + updates(t, other, board); got != want {
				t.Errorf("after %s: %q, want %q", what, got, want)
			}
		}
		save(t, s, testBoard("sort"))
		rank("sort", "H100", "1", 500)
		expect("what was there before", "sort", "")
		rank("sort", "B200", "2", 900)
		expect("a first one", "sort", "B200: user 2 900 <;")
		fast := rank("sort", "H100", "2", 400)
		expect("a better one", "sort", "H100: user 2 400 user 1 500 < user 1 500;")
		rank("sort", "H100", "2", 450)
		expect("a worse one of the same user", "sort", "")
		rank("sort", "H100", "3", 600)
		rank("sort", "H100", "4", 700)
		expect("a third and a fourth", "sort", "H100: user 2 400 user 1 500 user 3 600 < user 2 400 user 1 500;")
		if _, err := s.LogIn(ctx, "github", "1", "ann"); err != nil {
			t.Fatal(err)
		}
		expect("a renaming", "sort", "")
		if err := s.MarkHacked(ctx, fast, "no"); err != nil {
			t.Fatal(err)
		}
		expect("a hack", "sort", "H100: user 2 450 ann 500 user 3 600 < user 2 400 gone user 1 500 user 3 600;")

		closed := testBoard("sort")
		closed.Visibility = Closed
		save(t, s, closed)
		rank("sort", "H100", "1", 100)
		expect("what is closed", "sort", "")
		closed.Visibility = Public
		save(t, s, closed)
		expect("opening it", "sort", "")
		last := rank("sort", "H100", "3", 50)
		for gpu, want := range map[string]bool{"H100": true, "B200": false} {
			if got, err := other.RanksPublicly(ctx, gpu, last); err != nil || got != want {
				t.Errorf("RanksPublicly on %s = %t, %v", gpu, got, err)
			}
		}
		if got, err := other.RanksPublicly(ctx, "H100", fast); err != nil || got {
			t.Errorf("RanksPublicly of a hack = %t, %v", got, err)
		}

		var mu sync.Mutex
		var take int
		var both sync.WaitGroup
		for _, s := range []*Store{s, other, s, other} {
			both.Go(func() {
				changes, err := s.Announce(ctx, "sort")
				mu.Lock()
				defer mu.Unlock()
				if take += len(changes); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if take != 1 {
			t.Errorf("of four at once, %d got the change", take)
		}
		if _, err := s.Announce(ctx, "none"); !errors.Is(err, ErrNotFound) {
			t.Errorf("a board that is not there: %v", err)
		}
	})
}
