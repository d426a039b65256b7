package backend_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

// A rig is a backend on a store with a public board "sort" and a closed one "dark".
type rig struct {
	*backend.Backend
	s *store.Store
	q *servertest.Queue
}

// as is what an admin may do.
func (r *rig) as(t *testing.T, v backend.Viewer) *backend.Admin {
	t.Helper()
	a, err := r.Admin(v)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// end makes now a board's deadline.
func (r *rig) end(t *testing.T, board string) error {
	t.Helper()
	_, err := r.as(t, admin).SetBoard(context.Background(), board, func(b *store.Board) error { b.Deadline = time.Now(); return nil }, store.SetOptions{})
	return err
}

var (
	nobody = backend.Viewer{}
	ann    = backend.Viewer{ID: "7", Name: "ann"}
	bob    = backend.Viewer{ID: "8", Name: "bob"}
	admin  = backend.Viewer{Admin: true}
	boss   = backend.Viewer{ID: "9", Name: "boss", Admin: true}
)

func both(t *testing.T, test func(t *testing.T, r *rig)) {
	for kind, open := range servertest.Stores {
		t.Run(kind, func(t *testing.T) {
			r := &rig{s: open(t), q: &servertest.Queue{}}
			dark := servertest.Board("dark")
			dark.Visibility = store.Closed
			servertest.Save(t, r.s, servertest.Board("sort"), dark)
			r.Backend = backend.New(backend.Options{Store: r.s, Queue: r.q})
			test(t, r)
		})
	}
}

func request() backend.Request {
	return backend.Request{Board: "sort", GPU: "H100", Mode: "leaderboard", FileName: "a.py", Code: []byte("x = 1\n")}
}

func (r *rig) submit(t *testing.T, v backend.Viewer, req backend.Request) int64 {
	t.Helper()
	receipt, err := r.Submit(context.Background(), v, req)
	if err != nil {
		t.Fatal(err)
	}
	return receipt.ID
}

// why returns what a refusal is about, -1 for anything else.
func why(err error) store.Why {
	var refused *store.Refusal
	if errors.As(err, &refused) {
		return refused.Why
	}
	return -1
}

func TestSubmitHonoursDirectives(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			board, gpu, code string
			wantGPU          string
			fault            string
		}{
			{"SORT", "H100", "x = 1", "H100", ""},
			{"", "", "#!POPCORN leaderboard Sort\n#!POPCORN gpu B200\n", "B200", ""},
			{"sort", "H100", "#!POPCORN leaderboard sort\n#!POPCORN gpu B200\n", "H100", ""},
			{"sort", "H100", "#!POPCORN leaderboard other\n", "", `the file says "other"`},
			{"sort", "", "#!POPCORN gpus H100 B200\n", "", "GPU type: got 2, want exactly one"},
			{"sort", "", "x = 1", "", "GPU type: got 0, want exactly one"},
			{"sort", "h100", "x = 1", "", "board sort has B200, H100"},
			{"none", "H100", "x = 1", "", `unknown board "none"`},
			{"sort", "H100", "#!POPCORN\n", "", "line 1: !POPCORN"},
			{"", "H100", "x = 1", "", "unknown board"},
		} {
			req := request()
			req.Board, req.GPU, req.Code, req.Mode = c.board, c.gpu, []byte(c.code), "Test"
			receipt, err := r.Submit(context.Background(), ann, req)
			if c.fault != "" {
				if why(err) < 0 || !strings.Contains(err.Error(), c.fault) || strings.Contains(err.Error(), "\n") {
					t.Errorf("Submit(%q, %q, %q) = %v, want a refusal with %q", c.board, c.gpu, c.code, err, c.fault)
				}
				continue
			}
			if err != nil {
				t.Errorf("Submit(%q, %q, %q) = %v", c.board, c.gpu, c.code, err)
				continue
			}
			if gpu, mode, err := r.s.Target(context.Background(), receipt.ID); gpu != c.wantGPU || mode != "test" || err != nil {
				t.Errorf("Submit(%q, %q, %q) went to %s, %s (%v), want %s, test", c.board, c.gpu, c.code, gpu, mode, err, c.wantGPU)
			}
		}
		if r.q.Woken != 3 {
			t.Errorf("the queue was woken %d times, want 3", r.q.Woken)
		}
	})
}

func TestSubmitKeepsWhoOut(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		for _, v := range []backend.Viewer{nobody, admin} {
			if _, err := r.Submit(ctx, v, request()); !errors.Is(err, backend.ErrForbidden) {
				t.Errorf("Submit by %+v: %v, want ErrForbidden", v, err)
			}
		}
		for _, v := range []backend.Viewer{nobody, ann} {
			if a, err := r.Admin(v); a != nil || !errors.Is(err, backend.ErrForbidden) {
				t.Errorf("Admin for %+v: %v, %v, want ErrForbidden", v, a, err)
			}
		}
		if err := r.as(t, admin).SetAccepting(ctx, false); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Submit(ctx, ann, request()); why(err) != store.Invalid || !strings.Contains(err.Error(), "no submissions are taken") {
			t.Errorf("Submit while stopped: %v", err)
		}
		r.submit(t, boss, request())
		if err := r.as(t, admin).SetAccepting(ctx, true); err != nil {
			t.Fatal(err)
		}
		closed := request()
		closed.Board = "dark"
		if _, err := r.Submit(ctx, ann, closed); why(err) != store.NotInvited {
			t.Errorf("Submit to a closed board: %v, want NotInvited", err)
		}
		r.submit(t, boss, closed)
		codes, err := r.as(t, admin).NewInvites(ctx, []string{"Dark"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Join(ctx, nobody, codes[0]); !errors.Is(err, backend.ErrForbidden) {
			t.Errorf("Join by nobody: %v", err)
		}
		if _, err := r.NewCLIID(ctx, ann); err != nil { // makes her a user
			t.Fatal(err)
		}
		if boards, err := r.Join(ctx, ann, codes[0]); err != nil || len(boards) != 1 || boards[0] != "dark" {
			t.Errorf("Join = %v, %v", boards, err)
		}
		r.submit(t, ann, closed)
	})
}

// Deadline and limits hold for users, and not for admins, also when code is handed
// in again.
func TestDeadlineAndLimits(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		id := r.submit(t, ann, request())
		limits := []store.Limit{{Category: schema.ModeLeaderboard, PerHour: 2}}
		if _, err := r.as(t, admin).SetBoard(ctx, "sort", func(b *store.Board) error { b.Limits = limits; return nil }, store.SetOptions{}); err != nil {
			t.Fatal(err)
		}
		if limits, err := r.Limits(ctx, nobody, "sort"); err != nil || len(limits) != 1 || limits[0].PerHour != 2 {
			t.Errorf("Limits = %v, %v", limits, err)
		}
		if _, err := r.Rerun(ctx, ann, id); err != nil {
			t.Errorf("Rerun within the limit: %v", err)
		}
		var refused *store.Refusal
		if _, err := r.Rerun(ctx, ann, id); !errors.As(err, &refused) || refused.Why != store.OverLimit || refused.RetryAfter <= 0 {
			t.Errorf("Rerun beyond the limit: %v", err)
		}
		if err := r.Delete(ctx, ann, id); why(err) != store.OverLimit {
			t.Errorf("Delete of what counts: %v, want OverLimit", err)
		}
		if err := r.end(t, "sort"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Submit(ctx, bob, request()); why(err) != store.AfterDeadline {
			t.Errorf("Submit after the deadline: %v", err)
		}
		if _, err := r.Rerun(ctx, bob, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Rerun of a submission one may not see: %v", err)
		}
		receipt, err := r.Rerun(ctx, admin, id)
		if err != nil {
			t.Fatal(err)
		}
		r.submit(t, boss, request())
		again, err := r.Submission(ctx, ann, receipt.ID)
		if err != nil || !again.Own || again.Code != "x = 1\n" || again.FileName != "a.py" || again.Mode != "leaderboard" {
			t.Errorf("the admin's rerun = %+v, %v, want one of ann's with the same code", again, err)
		}
	})
}

func TestWhoSeesWhat(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		id := r.submit(t, ann, request())
		r.q.Waits = map[int64]backend.Wait{id: {GPU: "H100", Place: 3}}
		if s, err := r.Submission(ctx, ann, id); err != nil || s.Wait == nil || s.Wait.Place != 3 || !s.ShowCode {
			t.Errorf("while it waits its owner sees %+v, %v", s, err)
		}
		if _, err := r.Submission(ctx, bob, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("while it waits others see %v, want ErrNotFound", err)
		}
		servertest.Evaluate(t, r.s, func(p store.PlannedRun) *schema.Result {
			result := servertest.Result(p.Mode, true, 1000)
			result.System.Hostname = "rack-17"
			return result
		})
		own, err := r.Submission(ctx, ann, id)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(own.Reports[0].Raw), "rack-17") || own.Reports[0].Result.System.Hostname != "" || own.Job.Heartbeat.Second() != 0 {
			t.Errorf("its owner sees the machine's name, or when the secret run ended: %v", own.Job.Heartbeat)
		}
		if own.Wait != nil || len(own.Reports) != 1 || len(own.Runs) != 6 || own.Runs[0].Meta == nil {
			t.Errorf("its owner sees %d reports, %d runs, want 1, 6, with what they printed", len(own.Reports), len(own.Runs))
		}
		for _, run := range own.Runs {
			if run.Secret && (run.Score != nil || run.Meta != nil || run.Start != run.End || run.End.Second() != 0) {
				t.Errorf("its owner sees of a secret run: %+v", run)
			}
		}
		full, err := r.Submission(ctx, admin, id)
		if err != nil || !strings.Contains(string(full.Reports[0].Raw), "rack-17") || full.Own || full.Runs[5].Score == nil || !full.Runs[5].Secret {
			t.Errorf("an admin sees %+v, %v, want the secret score", full, err)
		}
		for _, v := range []backend.Viewer{nobody, bob} {
			s, err := r.Submission(ctx, v, id)
			if err != nil {
				t.Fatal(err)
			}
			if s.Code != "" || s.ShowCode || s.Reports != nil || len(s.Runs) != 3 || s.Runs[0].Meta != nil || s.Runs[0].Result != nil {
				t.Errorf("%+v sees %+v, want no code and nothing printed", v, s)
			}
			for what, err := range map[string]error{"Cancel": r.Cancel(ctx, v, id), "Delete": r.Delete(ctx, v, id)} {
				if !errors.Is(err, backend.ErrForbidden) {
					t.Errorf("%s by %+v: %v, want ErrForbidden", what, v, err)
				}
			}
		}
		if err := r.end(t, "sort"); err != nil {
			t.Fatal(err)
		}
		if s, err := r.Submission(ctx, bob, id); err != nil || !s.ShowCode || s.Code == "" {
			t.Errorf("after the deadline a user sees %+v, %v, want the code", s, err)
		}
		if s, err := r.Submission(ctx, nobody, id); err != nil || s.ShowCode || s.Code != "" {
			t.Errorf("after the deadline nobody sees %+v, %v, want no code", s, err)
		}
		never := servertest.Board("sort")
		never.Deadline, never.ShowCode = time.Now().Add(-time.Hour), store.CodeNever
		servertest.Save(t, r.s, never)
		if s, err := r.Submission(ctx, bob, id); err != nil || s.ShowCode || s.Code != "" {
			t.Errorf("on a board that never shows code a user sees %+v, %v", s, err)
		}
		if err := r.as(t, admin).MarkHacked(ctx, id, "it reads the clock"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Submission(ctx, bob, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a hacked submission, seen by others: %v, want ErrNotFound", err)
		}
	})
}

func TestCancelAndDelete(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		id := r.submit(t, ann, request())
		claimed, err := r.s.Claim(ctx, "test", 1, nil, time.Minute)
		if err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
		if err := r.s.Creating(ctx, claimed[0]); err != nil {
			t.Fatal(err)
		}
		if err := r.Cancel(ctx, ann, id); err != nil {
			t.Fatal(err)
		}
		if len(r.q.Dropped) != 1 || r.q.Dropped[0].RunID != claimed[0].RunID {
			t.Errorf("dropped were %+v, want the run that had begun", r.q.Dropped)
		}
		if s, err := r.Submission(ctx, ann, id); err != nil || !s.Done || s.Job.Status != store.StatusFailed || s.Job.Error != "cancelled by its submitter" {
			t.Errorf("after Cancel: %+v, %v", s, err)
		}
		if err := r.Cancel(ctx, ann, id); why(err) != store.Finished {
			t.Errorf("Cancel once more: %v, want Finished", err)
		}
		waiting := r.submit(t, ann, request())
		for _, id := range []int64{id, waiting} {
			if err := r.Delete(ctx, ann, id); err != nil {
				t.Errorf("Delete(%d): %v", id, err)
			}
			if _, err := r.Submission(ctx, ann, id); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("after Delete(%d): %v", id, err)
			}
		}
		if err := r.Delete(ctx, admin, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Delete of what is gone: %v", err)
		}
	})
}

func TestLog(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		id := r.submit(t, ann, request())
		if _, err := r.Log(ctx, ann, id, ""); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Log before there is a build: %v", err)
		}
		servertest.Evaluate(t, r.s, nil)
		if text, err := r.Log(ctx, ann, id, ""); text != "log of build 7\n" || err != nil {
			t.Errorf("Log = %q, %v", text, err)
		}
		runs, err := r.s.PlannedRuns(ctx, id)
		if err != nil || len(runs) != 2 {
			t.Fatal(runs, err)
		}
		secret := runs[1].RunID
		for _, c := range []struct {
			v    backend.Viewer
			run  string
			want error
		}{{ann, secret, backend.ErrForbidden}, {admin, secret, nil}, {bob, "", backend.ErrForbidden}, {ann, "none", store.ErrNotFound}} {
			if _, err := r.Log(ctx, c.v, id, c.run); !errors.Is(err, c.want) {
				t.Errorf("Log(%+v, %q): %v, want %v", c.v, c.run, err, c.want)
			}
		}
	})
}

func TestClosedBoardsAreHidden(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		in := request()
		in.Board = "dark"
		id := r.submit(t, boss, in)
		servertest.Evaluate(t, r.s, nil)
		r.q.Lines = []backend.GPUStatus{{GPU: "H100", Running: 2, Runs: []backend.QueuedRun{{Submission: id, Board: "dark"}, {Submission: 99, Board: "sort"}}}}
		for _, c := range []struct {
			v    backend.Viewer
			sees int
		}{{nobody, 1}, {ann, 1}, {admin, 2}} {
			boards, err := r.Boards(ctx, c.v)
			if err != nil || len(boards) != c.sees {
				t.Errorf("Boards(%+v) = %d, %v, want %d", c.v, len(boards), err, c.sees)
			}
			line, err := r.Line(ctx, c.v)
			if err != nil || len(line[0].Runs) != c.sees || line[0].Running != 2 {
				t.Errorf("Line(%+v) = %+v, %v, want %d runs listed and 2 counted", c.v, line, err, c.sees)
			}
			_, _, ranking := r.Ranking(ctx, c.v, "Dark", "H100", 0, 0)
			_, history := r.History(ctx, c.v, "dark", "H100", "")
			_, board := r.Board(ctx, c.v, "dark")
			_, submission := r.Submission(ctx, c.v, id)
			for what, err := range map[string]error{"Ranking": ranking, "History": history, "Board": board, "Submission": submission} {
				if hidden := errors.Is(err, store.ErrNotFound); hidden != (c.sees == 1) || !hidden && err != nil {
					t.Errorf("%s of a closed board for %+v: %v", what, c.v, err)
				}
			}
		}
		if len(r.q.Lines[0].Runs) != 2 {
			t.Error("Line changed what the queue keeps")
		}
		if _, _, err := r.Ranking(ctx, nobody, "sort", "T4", 0, 0); why(err) != store.UnknownGPU {
			t.Errorf("Ranking on a GPU type that is not the board's: %v", err)
		}
	})
}

func TestVerifyAndRejudge(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		id := r.submit(t, ann, request())
		if err := r.as(t, admin).Verify(ctx, id, ""); why(err) != store.Invalid {
			t.Errorf("Verify of what has not finished: %v", err)
		}
		servertest.Evaluate(t, r.s, nil)
		if err := r.as(t, admin).Verify(ctx, id, "T4"); why(err) != store.UnknownGPU {
			t.Errorf("Verify on a GPU type that is not the board's: %v", err)
		}
		if err := r.as(t, admin).Verify(ctx, id, "B200"); err != nil {
			t.Fatal(err)
		}
		servertest.Evaluate(t, r.s, nil)
		if list, _, err := r.Ranking(ctx, nobody, "sort", "B200", 0, 0); err != nil || len(list) != 1 || list[0].SubmissionID != id {
			t.Errorf("the ranking on the other GPU type = %+v, %v", list, err)
		}
		if got, err := r.as(t, admin).Rejudge(ctx, "Sort", store.Rejudging{}); got.Submissions != 2 || err != nil {
			t.Errorf("Rejudge = %+v, %v, want 2 submissions", got, err)
		}
	})
}

func TestMine(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		mine := r.submit(t, ann, request())
		r.submit(t, bob, request())
		if _, err := r.Mine(ctx, nobody, store.Query{}); !errors.Is(err, backend.ErrForbidden) {
			t.Errorf("Mine by nobody: %v", err)
		}
		if list, err := r.Mine(ctx, ann, store.Query{UserID: "8"}); err != nil || len(list) != 1 || list[0].ID != mine {
			t.Errorf("Mine of ann = %+v, %v", list, err)
		}
		if list, err := r.Mine(ctx, admin, store.Query{}); err != nil || len(list) != 2 {
			t.Errorf("Mine of an admin = %d, %v, want all 2", len(list), err)
		}
		if _, err := r.Mine(ctx, ann, store.Query{Offset: -1}); why(err) != store.Invalid {
			t.Errorf("Mine with a negative offset: %v", err)
		}
	})
}

// A board that wants it answers a test of a text that it knows at once; whoever asks
// for a rerun gets one.
func TestReuseAndRerun(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		board := servertest.Board("sort")
		board.Reuse, board.ShowCode = true, store.CodeAfter
		servertest.Save(t, r.s, board)
		in := request()
		in.Mode = schema.ModeTest
		r.submit(t, ann, in)
		servertest.Evaluate(t, r.s, nil)
		known, err := r.Submission(ctx, bob, r.submit(t, bob, in))
		if err != nil || !known.Done || len(known.Reports) != 1 || !known.Runs[0].Passed {
			t.Errorf("the same text again: %+v, %v, want the result that is there", known, err)
		}
		receipt, err := r.Rerun(ctx, bob, known.ID)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := r.Submission(ctx, bob, receipt.ID); err != nil || s.Done {
			t.Errorf("a rerun of it: %+v, %v, want it to be evaluated", s, err)
		}
	})
}
