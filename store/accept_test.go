package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

func refusal(t *testing.T, err error, why Why, words string) {
	t.Helper()
	var refused *Refusal
	if !errors.As(err, &refused) || refused.Why != why || !strings.Contains(refused.Text, words) || strings.Contains(refused.Text, "\n") {
		t.Errorf("got %v (%T), want a refusal %d with %q on one line", err, err, why, words)
	}
}

func count(t *testing.T, s *Store, table string) (n int) {
	t.Helper()
	if err := s.db.Row(context.Background(), s.db.Read, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Whatever is refused leaves no row, and its error does not quote the code.
func TestAcceptRefuses(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		past, closed := testBoard("past"), testBoard("closed")
		past.Deadline, closed.Visibility = time.Now().Add(-time.Hour), Closed
		save(t, s, testBoard("open"), past, closed)
		if err := s.change(ctx, "", func(t *tx) { t.upsertUser("99", "banned") }); err != nil {
			t.Fatal(err)
		}
		if err := s.Ban(ctx, "99", true); err != nil {
			t.Fatal(err)
		}
		users := count(t, s, "lb.user_info")
		for _, tt := range []struct {
			words string
			why   Why
			edit  func(*Submission)
		}{
			{"user id", Invalid, func(in *Submission) { in.UserID = "u1" }},
			{"user id", Invalid, func(in *Submission) { in.UserID = strings.Repeat("1", 21) }},
			{"user id", Invalid, func(in *Submission) { in.UserID = "" }},
			{"file name", Invalid, func(in *Submission) { in.FileName = "../../etc/passwd" }},
			{"file name", Invalid, func(in *Submission) { in.FileName = "a\x00.py" }},
			{"file name", Invalid, func(in *Submission) { in.FileName = ".py" }},
			{"file name", Invalid, func(in *Submission) { in.FileName = strings.Repeat("a", 300) + ".py" }},
			{"empty", Invalid, func(in *Submission) { in.Code = nil }},
			{"1000001 bytes", Invalid, func(in *Submission) { in.Code = make([]byte, MaxCode+1) }},
			{"U+0000", Invalid, func(in *Submission) { in.Code = []byte("my kernel\x00") }},
			{"UTF-8", Invalid, func(in *Submission) { in.Code = []byte("my kernel\xff") }},
			{"mode", Invalid, func(in *Submission) { in.Mode = schema.ModePrivate }},
			{"mode", Invalid, func(in *Submission) { in.Mode = "rank" }},
			{"unknown board", UnknownBoard, func(in *Submission) { in.Board = "nope" }},
			{"has B200, H100", UnknownGPU, func(in *Submission) { in.GPU = "h100" }},
			{"not submit here", Banned, func(in *Submission) { in.UserID = "99" }},
			{"no invite", NotInvited, func(in *Submission) { in.Board = "closed" }},
			{"deadline", AfterDeadline, func(in *Submission) { in.Board = "past" }},
		} {
			in := submission("open", "H100", "7")
			tt.edit(&in)
			_, err := s.Accept(ctx, in)
			refusal(t, err, tt.why, tt.words)
			if err != nil && strings.Contains(err.Error(), "my kernel") {
				t.Errorf("the error quotes the code: %v", err)
			}
		}
		for _, table := range []string{"lb.submission", "lb.code_files", "lb.submission_job_status", "own.planned_run", "own.accepted"} {
			if n := count(t, s, table); n != 0 {
				t.Errorf("%d rows in %s after refusals", n, table)
			}
		}
		if n := count(t, s, "lb.user_info"); n != users {
			t.Errorf("%d users, want %d as before", n, users)
		}
	})
}

// The same text is kept once, and a name is its base name.
func TestAcceptKeepsCodeOnce(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		in := submission("sort", "H100", "7")
		in.FileName = `C:\up/../submission.py`
		var wait sync.WaitGroup
		for i := range 8 {
			wait.Go(func() {
				in := in
				in.UserID = fmt.Sprint(100 + i)
				if _, err := s.Accept(ctx, in); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		if code, subs := count(t, s, "lb.code_files"), count(t, s, "lb.submission"); code != 1 || subs != 8 {
			t.Errorf("%d files for %d submissions of one text, want 1 for 8", code, subs)
		}
		p, err := s.Poll(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		if p.FileName != "submission.py" || p.Code != string(in.Code) || p.Job.Status != StatusPending || p.Done || len(p.Open) != 2 || p.Open[0].Secret == p.Open[1].Secret {
			t.Errorf("Poll = %+v", p)
		}
	})
}

// Limits hold however many submissions come at once, per category and per GPU.
func TestLimitsAreCountedWithTheInsert(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		b := testBoard("sort")
		b.Limits = []Limit{{Category: schema.ModeLeaderboard, PerHour: 3}, {Category: schema.ModeTest, PerHour: 9}, {GPU: "B200", Category: schema.ModeTest, PerHour: 1}}
		save(t, s, b)
		var wait sync.WaitGroup
		var mu sync.Mutex
		in, over := 0, 0
		for range 12 {
			wait.Go(func() {
				_, err := s.Accept(ctx, submission("sort", "H100", "7"))
				var refused *Refusal
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					in++
				case errors.As(err, &refused) && refused.Why == OverLimit && refused.RetryAfter > 59*time.Minute && refused.RetryAfter <= time.Hour:
					over++
				default:
					t.Errorf("Accept: %v", err)
				}
			})
		}
		wait.Wait()
		if in != 3 || over != 9 {
			t.Errorf("%d accepted and %d refused of 12 at once, want 3 and 9", in, over)
		}
		one := submission("sort", "B200", "7")
		one.Mode = schema.ModeTest
		if _, err := s.Accept(ctx, one); err != nil {
			t.Fatal(err)
		}
		_, err := s.Accept(ctx, one)
		refusal(t, err, OverLimit, "1 of 1 test submissions an hour on B200")
		one.Time = one.Time.Add(61 * time.Minute)
		if _, err := s.Accept(ctx, one); err != nil {
			t.Errorf("an hour later: %v", err)
		}
		one.GPU = "H100"
		one.NoLimits = true
		if _, err := s.Accept(ctx, one); err != nil {
			t.Errorf("without limits: %v", err)
		}
	})
}
