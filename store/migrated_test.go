package store

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/database"
)

// migrateFurther changes a database as a later program's migration would.
func migrateFurther(t *testing.T, s *Store, version int, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := s.db.Exec(t.Context(), s.db.Write, statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.db.Exec(t.Context(), s.db.Write, `INSERT INTO own.goose_version (version_id, is_applied) VALUES ($1, $2)`, version, true); err != nil {
		t.Fatal(err)
	}
}

// A program that has the database open while a newer one migrates it goes on as long as
// its columns are there. It cannot be started again.
func TestOpenWhileANewerProgramMigrates(t *testing.T) {
	bothShared(t, func(t *testing.T, s, newer *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		submit := func(user string) {
			t.Helper()
			if _, err := s.Accept(ctx, submission("sort", "H100", user)); err != nil {
				t.Fatal(err)
			}
			evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, 1000) })
		}
		submit("1")
		if other, err := s.Recheck(ctx); other != nil || err != nil {
			t.Errorf("Recheck before: %v, %v", other, err)
		}
		migrateFurther(t, newer, 1_000_000, `ALTER TABLE own.planned_run ADD COLUMN later text NOT NULL DEFAULT ''`, `ALTER TABLE own.board ADD COLUMN later text NOT NULL DEFAULT ''`,
			`CREATE TABLE own.later (name text PRIMARY KEY)`)
		if other, err := s.Recheck(ctx); err != nil || other == nil || other.Got != 1_000_000 {
			t.Errorf("Recheck after columns were added: %v, %v", other, err)
		}
		submit("2")
		if _, total, err := s.Page(ctx, "sort", "H100", 0, 0); err != nil || total != 2 {
			t.Errorf("%d rank, %v; want 2", total, err)
		}
		migrateFurther(t, newer, 1_000_001, `ALTER TABLE own.planned_run RENAME COLUMN fence TO token`)
		if _, err := s.Recheck(ctx); !errors.Is(err, database.ErrIncompatible) || !strings.Contains(err.Error(), "the database has version 1000001, want ") || !strings.Contains(err.Error(), "planned_run: got no column fence") {
			t.Errorf("Recheck after a column was renamed: %v", err)
		}
	})
}
