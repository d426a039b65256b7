package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// A page says the same as the whole list, and late submissions do not rank.
func TestPage(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		board := testBoard("sort")
		board.Deadline = time.Now().Add(time.Hour)
		save(t, s, board)
		for i := range 7 {
			if _, err := s.Accept(ctx, submission("sort", "H100", fmt.Sprint(i+1))); err != nil {
				t.Fatal(err)
			}
		}
		late := submission("sort", "H100", "1")
		late.Time, late.AnyTime = late.Time.Add(2*time.Hour), true
		out, err := s.Accept(ctx, late)
		if err != nil {
			t.Fatal(err)
		}
		evaluate(t, s, func(p PlannedRun) *schema.Result {
			if p.Submission == out.ID {
				return result(true, 1)
			}
			return result(true, float64(10*((p.Submission+1)/2)))
		})
		all, total, err := s.Page(ctx, "sort", "H100", 0, 0)
		if err != nil || total != 7 || len(all) != 7 || all[0].Rank != 1 || all[1].Rank != 1 || all[2].Rank != 3 || all[0].Score != 1e-8 {
			t.Fatalf("Page = %+v, %d, %v", all, total, err)
		}
		var got []ranking.Entry
		for offset := 0; offset < 7; offset += 2 {
			page, _, err := s.Page(ctx, "sort", "H100", 2, offset)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, page...)
		}
		if fmt.Sprint(got) != fmt.Sprint(all) {
			t.Errorf("pages of two: %v\nwant %v", got, all)
		}
		p, err := s.Poll(ctx, out.ID)
		if err != nil || len(p.Verdicts) != 1 || p.Verdicts[0].Reason != "after the deadline" || p.Job.Status != StatusSucceeded {
			t.Errorf("the late submission: %+v, %v", p, err)
		}
		if _, _, err := s.Page(ctx, "sort", "H100", -1, 0); err == nil {
			t.Error("Page with a negative limit")
		}
		if _, _, err := s.Page(ctx, "none", "H100", 0, 0); err == nil {
			t.Error("Page of no board")
		}
	})
}
