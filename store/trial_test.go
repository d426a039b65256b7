package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// everything is each row of each table there is, by table.
func everything(t *testing.T, s *Store) map[string][]string {
	t.Helper()
	ctx := context.Background()
	statement := `SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'sqlite_sequence'`
	if s.db.Kind == database.Postgres {
		statement = `SELECT table_schema || '.' || table_name FROM information_schema.tables WHERE table_schema IN ('leaderboard', 'kbserve', 'public')`
	}
	all := map[string][]string{}
	err := s.db.Each(ctx, s.db.Read, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		all[name] = nil
		return err
	}, statement)
	if err != nil {
		t.Fatal(err)
	}
	for table := range all {
		err := s.db.Each(ctx, s.db.Read, func(rows *sql.Rows) error {
			columns, err := rows.Columns()
			if err != nil {
				return err
			}
			row, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range row {
				into[i] = &row[i]
			}
			err = rows.Scan(into...)
			all[table] = append(all[table], fmt.Sprint(row...))
			return err
		}, "SELECT * FROM "+table)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(all[table])
	}
	return all
}

// A test of the installation leaves no row, and takes none away.
func TestATestIsRemoved(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		fill(t, s)
		shared := submission("sort", "H100", "1")
		if _, err := s.Accept(ctx, shared); err != nil {
			t.Fatal(err)
		}
		evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, 77) })
		codes, err := s.NewInvites(ctx, []string{"sort"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.ClaimInvite(ctx, codes[0], "2"); err != nil {
			t.Fatal(err)
		}
		before := everything(t, s)
		if len(before) < 25 || len(before[s.db.Q("lb.submission")]) != 13 {
			t.Fatalf("%d tables, %d submissions", len(before), len(before[s.db.Q("lb.submission")]))
		}

		name := TestPrefix + "1"
		b := testBoard(name)
		b.Limits, b.Policy, b.ShowCode = []Limit{{Category: schema.ModeTest, PerHour: 9}, {GPU: "H100", Category: schema.ModeTest, PerHour: 9}}, &ranking.Policy{Ties: true}, CodeNever
		save(t, s, b)
		user, cliID, err := s.NewTestUser(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if u, err := s.UserByCLIID(ctx, cliID); err != nil || u.ID != user {
			t.Errorf("the test's user is %+v, %v", u, err)
		}
		alone, _, err := s.NewTestUser(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if codes, err = s.NewInvites(ctx, []string{name}, 2); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ClaimInvite(ctx, codes[0], user); err != nil {
			t.Fatal(err)
		}
		shared.Board, shared.UserID = name, user // code that somebody else has handed in
		own := submission(name, "B200", user)
		own.Code = []byte("# of the test alone")
		guest := submission(name, "H100", "3") // somebody who was there before
		guest.UserName = ""
		for _, in := range []Submission{shared, own, guest} {
			in.UserName = ""
			if _, err := s.Accept(ctx, in); err != nil {
				t.Fatal(err)
			}
		}
		raw := []byte("{}")
		claimed, err := s.Claim(ctx, "test", 3, nil, 1e9)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range claimed {
			if err := s.Record(ctx, p, result(true, 5), raw); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(before, everything(t, s)); diff == "" {
			t.Fatal("the test has made nothing")
		}

		for _, wrong := range []string{"sort", "", "kbserve-tes"} {
			refusal(t, s.RemoveTest(ctx, wrong), Invalid, "begins with")
		}
		refusal(t, s.RemoveTest(ctx, name, "3"), Invalid, "made for a test")
		for range 2 { // again is no fault
			if err := s.RemoveTest(ctx, name, alone); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, everything(t, s)); diff != "" {
				t.Errorf("after the test (-before +after):\n%s", diff)
			}
		}
	})
}
