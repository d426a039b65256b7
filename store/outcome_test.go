package store

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/database/migrations"
)

// A submission has the outcome of its runs: the public one first, and of a secret one only
// whose fault it was. Lists and single submissions agree.
func TestOutcomeOfASubmission(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		judged := func(outcome string) *schema.Result { // what kbrun reports
			r := result(outcome == schema.OutcomePassed, 5)
			r.Outcome = schema.NewOutcome(outcome, "")
			if r.Outcome.Retry {
				r.Success, r.Error, r.Runs = false, r.Outcome.Text, nil
			}
			return r
		}
		rows := func(exit int, success, compiled bool) *schema.Result { // what only rows tell
			r := result(false, 5)
			r.Runs[0].Run.Success, r.Runs[0].Run.ExitCode = success, exit
			r.Runs[0].Compilation = &schema.CompileResult{Success: compiled}
			if !compiled {
				r.Runs[0].Run = nil
			}
			return r
		}
		for _, c := range []struct {
			name           string
			public, secret *schema.Result
			want, fault    string
			text           string
		}{
			{"passed", judged("passed"), judged("passed"), "passed", "none", "every phase passed"},
			{"syntax error", judged("syntax-error"), judged("timeout"), "syntax-error", "submission", "the submission is not valid Python"},
			{"failed in secret", judged("passed"), judged("timeout"), "wrong", "submission", "the secret run did not pass; how it failed is not shown"},
			{"busy machine", judged("ambiguous"), judged("passed"), "ambiguous", "machine", "the machine was too busy to measure times that hold"},
			{"busy machine in secret", judged("passed"), judged("ambiguous"), "machine", "machine", "the secret run has no result: the machine could not run the evaluation"},
			{"task in secret", judged("passed"), judged("harness-fault"), "harness-fault", "task", ""},
			{"rows that passed", result(true, 5), result(true, 5), "passed", "none", ""},
			{"rows that are wrong", rows(112, true, true), result(true, 5), "wrong", "submission", ""},
			{"rows of a timeout", rows(114, false, true), result(true, 5), "timeout", "submission", ""},
			{"rows of a crash", rows(1, false, true), result(true, 5), "crashed", "submission", ""},
			{"rows of a compiler", rows(1, false, false), result(true, 5), "compile-failed", "submission", ""},
			{"rows that failed in secret", result(true, 5), rows(1, false, true), "wrong", "submission", "the secret run did not pass; how it failed is not shown"},
			{"rows and a machine", judged("gpu-busy"), result(true, 5), "gpu-busy", "machine", ""},
		} {
			in := submission("sort", "H100", "7")
			in.Code, in.Fresh = []byte("# "+c.name), true
			accepted, err := s.Accept(ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			if p, err := s.Poll(ctx, accepted.ID); err != nil || p.Outcome != nil || p.Progress() != "waiting" {
				t.Errorf("%s: before it runs: %+v, %q, %v; want no outcome, and waiting", c.name, p.Outcome, p.Progress(), err)
			}
			evaluate(t, s, func(p PlannedRun) *schema.Result {
				if p.Secret {
					return c.secret
				}
				return c.public
			})
			p, err := s.Poll(ctx, accepted.ID)
			if err != nil {
				t.Fatal(err)
			}
			if o := p.Outcome; o == nil || o.Name != c.want || o.Fault != c.fault || c.text != "" && o.Text != c.text || p.Progress() != c.want {
				t.Errorf("%s: outcome = %+v, progress %q; want %s, fault %s, %q", c.name, o, p.Progress(), c.want, c.fault, c.text)
			}
			list, err := s.Submissions(ctx, Query{Limit: 1})
			if err != nil || len(list) != 1 || list[0].Outcome == nil || p.Outcome == nil || *list[0].Outcome != *p.Outcome {
				t.Errorf("%s: listed with %+v, %v; want %+v", c.name, list, err, p.Outcome)
			}
		}
		busy, err := s.Submissions(ctx, Query{})
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(busy, func(l Listed) bool { return l.Outcome.Name == schema.OutcomeAmbiguous })
		if next := busy[at].Outcome.Next; next != "This was not your submission's fault, and it was not judged. Run it again." {
			t.Errorf("next after a machine's fault = %q", next)
		}
		if err := s.Plan(ctx, busy[at].ID, "", 0); err != nil {
			t.Fatal(err)
		}
		evaluate(t, s, func(PlannedRun) *schema.Result { return judged("passed") })
		if p, err := s.Poll(ctx, busy[at].ID); err != nil || p.Progress() != schema.OutcomePassed {
			t.Errorf("after a further evaluation: %q, %v; want passed", p.Progress(), err)
		}
		open, err := s.Accept(ctx, submission("sort", "H100", "8"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CancelSubmission(ctx, open.ID, "cancelled by its submitter"); err != nil {
			t.Fatal(err)
		}
		if p, err := s.Poll(ctx, open.ID); err != nil || p.Progress() != schema.OutcomeCanceled {
			t.Errorf("a cancelled submission: %q, %v; want canceled", p.Progress(), err)
		}
		if _, err := s.db.Exec(ctx, s.db.Write, `DELETE FROM own.planned_run`); err != nil { // rows as Kernelbot writes them
			t.Fatal(err)
		}
		if p, err := s.Poll(ctx, 2); err != nil || p.Progress() != schema.OutcomeWrong {
			t.Errorf("Kernelbot's rows: %q, %v; want wrong", p.Progress(), err)
		}
	})
}

// Migration 9 corrects the stored reason of a submission whose public run failed, too.
func TestMigrationCorrectsReasons(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		for _, user := range []string{"7", "8"} {
			if _, err := s.Accept(ctx, submission("sort", "H100", user)); err != nil {
				t.Fatal(err)
			}
		}
		evaluate(t, s, func(p PlannedRun) *schema.Result { return result(p.Submission == 2 && !p.Secret, 5) })
		if _, err := s.db.Exec(ctx, s.db.Write, `UPDATE own.verdict SET reason = 'secret run failed'`); err != nil { // as older versions wrote them
			t.Fatal(err)
		}
		folder := map[database.Kind]string{database.SQLite: "sqlite", database.Postgres: "postgres"}[s.db.Kind]
		file, err := migrations.FS.ReadFile(folder + "/00009_result_outcome.sql")
		if err != nil {
			t.Fatal(err)
		}
		_, update, found := strings.Cut(string(file), "DEFAULT '';")
		if !found {
			t.Fatalf("no statement behind the new column in %s", file)
		}
		if _, err := s.db.Write.ExecContext(ctx, update); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[int64]string{1: "public run failed", 2: "secret run failed"} {
			if p, err := s.Poll(ctx, id); err != nil || p.Verdicts[0].Reason != want {
				t.Errorf("submission %d: reason = %q, %v; want %q", id, p.Verdicts[0].Reason, err, want)
			}
		}
		if faults, err := s.Check(ctx); err != nil || len(faults) > 0 {
			t.Errorf("Check = %q, %v; want no differences", faults, err)
		}
	})
}
