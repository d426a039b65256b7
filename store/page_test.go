package store

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// What one instance keeps of a ranking is old as soon as another has changed it.
func TestARankingIsKeptUntilItChanges(t *testing.T) {
	bothShared(t, func(t *testing.T, writes, reads *Store) {
		ctx := context.Background()
		submit := func(user, name string, ns float64) int64 {
			t.Helper()
			in := submission("sort", "H100", user)
			in.UserName, in.Code = name, fmt.Append(in.Code, ns)
			out, err := writes.Accept(ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			evaluate(t, writes, func(PlannedRun) *schema.Result { return result(true, ns) })
			return out.ID
		}
		expect := func(what, want, history string) {
			t.Helper()
			for range 2 { // what is made, and what is kept
				page, total, err := reads.Page(ctx, "sort", "H100", 0, 0)
				got := fmt.Sprint(total)
				for _, e := range page {
					got += fmt.Sprintf(" %d %s", e.Rank, e.User)
				}
				if err != nil || got != want {
					t.Errorf("after %s, the ranking is %q, %v; want %q", what, got, err, want)
				}
				steps, err := reads.History(ctx, "sort", "H100", "")
				got = ""
				for _, step := range steps {
					got += fmt.Sprintf("%s %d,", step.User, int(step.Score*1e9+0.5))
				}
				if err != nil || got != history {
					t.Errorf("after %s, the history is %q, %v; want %q", what, got, err, history)
				}
			}
		}
		save(t, writes, testBoard("sort"))
		expect("nothing", "0", "")
		submit("1", "ann", 500)
		expect("a first", "1 1 ann", "ann 500,")
		first := submit("2", "bob", 400)
		submit("2", "bob", 300)
		expect("a better one", "2 1 bob 2 ann", "ann 500,bob 400,bob 300,")
		if _, err := writes.LogIn(ctx, "github", "1", "anna"); err != nil {
			t.Fatal(err)
		}
		expect("a renaming", "2 1 bob 2 anna", "anna 500,bob 400,bob 300,")
		if err := writes.Delete(ctx, first); err != nil {
			t.Fatal(err)
		}
		expect("deleting what is no standing", "2 1 bob 2 anna", "anna 500,bob 300,")
		if err := writes.verify(ctx, 1, "H100", true, result(false, 1)); err != nil {
			t.Fatal(err)
		}
		expect("a late failure", "1 1 bob", "bob 300,")
		strict := testBoard("sort")
		strict.Policy = &ranking.Policy{Sandbox: schema.SandboxFull}
		save(t, writes, strict)
		expect("a policy", "0", "")
		strict.Policy = &ranking.Policy{}
		save(t, writes, strict)
		expect("no policy", "1 1 bob", "bob 300,")
		if _, err := writes.db.Exec(ctx, writes.db.Write, `UPDATE own.standing SET score = 9`); err != nil {
			t.Fatal(err)
		}
		if _, err := writes.Rebuild(ctx); err != nil {
			t.Fatal(err)
		}
		expect("rebuilding", "1 1 bob", "bob 300,")
		if _, err := writes.DeleteBoard(ctx, "sort", true); err != nil {
			t.Fatal(err)
		}
		if _, _, err := reads.Page(ctx, "sort", "H100", 0, 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("the ranking of a board that is gone: %v, want ErrNotFound", err)
		}
		save(t, writes, testBoard("sort"))
		expect("a new board of the same name", "0", "")
	})
}

// Whoever gets a page may change it.
func TestAPageIsTheCallersOwn(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		fill(t, s)
		page, total, err := s.Page(ctx, "sort", "H100", 2, 1)
		if err != nil || len(page) != 2 || total < 3 || page[0].Rank != 2 {
			t.Fatalf("Page = %+v, %d, %v", page, total, err)
		}
		page[0].User = "changed"
		if again, _, err := s.Page(ctx, "sort", "H100", 2, 1); err != nil || again[0].User == "changed" {
			t.Errorf("a page of somebody else's is %+v, %v", again, err)
		}
		if page, total, err := s.Page(ctx, "sort", "H100", 5, 99); err != nil || len(page) != 0 || total < 3 {
			t.Errorf("a page beyond the end = %+v, %d, %v", page, total, err)
		}
		for i := range 2 * maxVersioned { // names that somebody invents
			if _, total, err := s.Page(ctx, "sort", fmt.Sprint("GPU", i), 0, 0); err != nil || total != 0 {
				t.Fatalf("a GPU type that is none: %d, %v", total, err)
			}
		}
		if n := len(s.rankings.lists); n != 1 {
			t.Errorf("%d rankings are kept, want that of the one GPU type that was read and has entries", n)
		}
	})
}
