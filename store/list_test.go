package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

func ids(list []Listed) (all []int64) {
	for _, l := range list {
		all = append(all, l.ID)
	}
	return all
}

func TestSubmissionsAreListed(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("other"))
		fill(t, s) // submission n is of user (n-1)%5+1, odd ones on H100; the fourth, eighth and twelfth fail
		test := submission("other", "H100", "9")
		test.Mode = schema.ModeTest
		if _, err := s.Accept(ctx, test); err != nil {
			t.Fatal(err)
		}
		evaluate(t, s, func(PlannedRun) *schema.Result {
			r := result(true, 1)
			r.Runs = r.Runs[:1]
			return r
		})
		if _, err := s.Accept(ctx, submission("other", "B200", "9")); err != nil { // stays open
			t.Fatal(err)
		}
		if err := s.MarkHacked(ctx, 2, "it slept"); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			q    Query
			want []int64
		}{
			{Query{}, []int64{14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}},
			{Query{Limit: 3}, []int64{14, 13, 12}},
			{Query{Limit: 3, Offset: 2}, []int64{12, 11, 10}},
			{Query{Limit: 3, Before: 3}, []int64{2, 1}},
			{Query{UserID: "1"}, []int64{11, 6, 1}},
			{Query{UserID: "1", GPU: "B200"}, []int64{6}},
			{Query{Board: "other"}, []int64{14, 13}},
			{Query{Board: "none"}, nil},
			{Query{Board: "sort", Status: StatusFailed}, []int64{12, 8, 4}},
			{Query{Status: StatusPending}, []int64{14}},
			{Query{Status: StatusHacked}, []int64{2}},
			{Query{UserID: "nobody"}, nil},
		} {
			list, err := s.Submissions(ctx, c.q)
			if err != nil || !slices.Equal(ids(list), c.want) {
				t.Errorf("Submissions(%+v) = %v, %v; want %v", c.q, ids(list), err, c.want)
			}
		}
		list, err := s.Submissions(ctx, Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			p, err := s.Poll(ctx, l.ID)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprint(l.Board, l.FileName, l.Mode, l.UserID, l.Time, l.Done, l.Hacked, l.Job)
			if want := fmt.Sprint(p.Board, p.FileName, p.Mode, p.UserID, p.Time, p.Done, p.Hacked, p.Job); got != want {
				t.Errorf("submission %d is listed as %s, and read as %s", l.ID, got, want)
			}
		}
		if l := list[13]; l.GPU != "H100" || l.User != "user 1" || len(l.Runs) != 3 || l.Runs[0].Score != nil || l.Runs[0].Ranks || l.Runs[2].Score == nil || !l.Runs[2].Ranks || l.Runs[2].GPU != "H100" || len(l.Verdicts) != 1 || !l.Verdicts[0].Ranks {
			t.Errorf("one that ranks is listed as %+v", l)
		}
		if l := list[12]; !l.Hacked || l.Runs[2].Ranks || l.Runs[2].Score == nil || l.Verdicts[0].Reason != "marked as hacked" {
			t.Errorf("one that was hacked is listed as %+v", l)
		}
		if l := list[10]; len(l.Runs) != 0 || len(l.Verdicts) != 1 || l.Verdicts[0].Ranks {
			t.Errorf("one that failed is listed as %+v", l)
		}
		if l := list[1]; len(l.Runs) != 1 || l.Runs[0].Score != nil || len(l.Verdicts) != 0 || l.Job.Status != StatusSucceeded {
			t.Errorf("a test is listed as %+v", l)
		}
		_, err = s.Submissions(ctx, Query{Limit: -1})
		refusal(t, err, Invalid, "limit -1")
	})
}

func TestHistory(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		begin := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
		means := []float64{500, 700, 400, 400, 300, 450, 200}
		for i := range means {
			in := submission("sort", "H100", fmt.Sprint(1+i%2))
			in.Time = begin.Add(time.Duration(i) * time.Minute)
			if _, err := s.Accept(ctx, in); err != nil {
				t.Fatal(err)
			}
		}
		evaluate(t, s, func(p PlannedRun) *schema.Result { return result(true, means[p.Submission-1]) })
		if err := s.MarkHacked(ctx, 5, "it slept"); err != nil {
			t.Fatal(err)
		}
		expect := func(what string, steps []Step, err error, want ...int64) {
			t.Helper()
			var got []int64
			for _, step := range steps {
				got = append(got, step.SubmissionID)
				if i := step.SubmissionID - 1; step.Score != means[i]/1e9 || !step.Time.Equal(begin.Add(time.Duration(i)*time.Minute)) || step.UserID != fmt.Sprint(1+i%2) || step.User != "user "+step.UserID {
					t.Errorf("%s has %+v", what, step)
				}
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s = submissions %v, %v; want %v", what, got, err, want)
			}
		}
		steps, err := s.History(ctx, "sort", "H100", "")
		expect("History", steps, err, 1, 3, 7) // an equal score is no step
		steps, err = s.History(ctx, "sort", "H100", "2")
		expect("History of a user", steps, err, 2, 4)
		steps, err = s.History(ctx, "sort", "B200", "")
		expect("History on another GPU", steps, err)
		if err := s.Delete(ctx, 3); err != nil {
			t.Fatal(err)
		}
		steps, err = s.History(ctx, "sort", "H100", "")
		expect("History after a deletion", steps, err, 1, 4, 7)
		if _, err := s.History(ctx, "none", "H100", ""); !errors.Is(err, ErrNotFound) {
			t.Errorf("History of no board: %v, want ErrNotFound", err)
		}
		if n, err := s.Count(ctx, "sort", "H100"); err != nil || n != 2 {
			t.Errorf("Count = %d, %v; want 2", n, err)
		}
		if n, err := s.Count(ctx, "sort", "B200"); err != nil || n != 0 {
			t.Errorf("Count on another GPU = %d, %v", n, err)
		}
		if _, err := s.Count(ctx, "none", "H100"); !errors.Is(err, ErrNotFound) {
			t.Errorf("Count of no board: %v, want ErrNotFound", err)
		}
	})
}

// Whatever was reported of a public run comes back byte for byte, and nothing of a
// secret one.
func TestReports(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		out, err := s.Accept(ctx, submission("sort", "H100", "7"))
		if err != nil {
			t.Fatal(err)
		}
		claimed, err := s.Claim(ctx, "x", 2, nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		r := result(true, 9)
		raw, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		public := ""
		for _, p := range claimed {
			if err := s.Record(ctx, p, r, raw); err != nil {
				t.Fatal(err)
			}
			if !p.Secret {
				public = p.RunID
			}
		}
		reports, err := s.Reports(ctx, out.ID)
		if err != nil || len(reports) != 1 {
			t.Fatalf("Reports = %d, %v; want one", len(reports), err)
		}
		if got := reports[0]; got.RunID != public || got.GPU != "H100" || string(got.Raw) != string(raw) || got.Result == nil || len(got.Result.Runs) != len(r.Runs) {
			t.Errorf("the report is %+v", got)
		}
		if reports, err := s.Reports(ctx, 99); err != nil || len(reports) != 0 {
			t.Errorf("Reports of no submission = %v, %v", reports, err)
		}
		if _, err := s.db.Exec(ctx, s.db.Write, `UPDATE own.report SET body = $1`, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Reports(ctx, out.ID); err == nil {
			t.Error("a report that cannot be unpacked is no error")
		}
	})
}
