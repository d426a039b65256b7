package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/popcorn"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/api"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

var code = []byte("def custom_kernel(x): return x\n")

// popcorn-cli submits, waits, lists and deletes.
func TestPopcornSubmits(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		ann := r.client("ann")
		accepted, err := ann.Submit(ctx, "Sort", "H100", "Leaderboard", "my kernel.py", code)
		if err != nil {
			t.Fatal(err)
		}
		r.q.Waits[accepted.ID] = backend.Wait{GPU: "H100", Place: 3, Expected: time.Minute}
		waiting, err := ann.Submission(ctx, accepted.ID)
		if err != nil || waiting.Done || waiting.JobStatus != "pending" || waiting.Queue == nil || waiting.Queue.Jobs == nil || *waiting.Queue.Jobs != 3 || waiting.Queue.GPU != "H100" {
			t.Errorf("while it waits: %+v, %v, want place 3 on H100", waiting, err)
		}
		servertest.Evaluate(t, r.s, nil)
		done, err := ann.Wait(ctx, accepted.ID)
		if err != nil {
			t.Fatal(err)
		}
		public, secret := 0, 0
		for _, run := range done.Runs {
			switch {
			case run.Secret && run.Score != nil:
				t.Errorf("a secret score is shown: %+v", run)
			case run.Secret:
				secret++
			case run.Mode == "leaderboard" && (run.Score == nil || *run.Score != 1e-6):
				t.Errorf("the public score: %+v", run)
			default:
				public++
			}
		}
		if public != 3 || secret != 3 || done.Code != string(code) || done.FileName != "my kernel.py" || done.UserID != "7" || done.Leaderboard != "sort" || done.JobStatus != "succeeded" || done.Queue != nil {
			t.Errorf("when it is done: %d public and %d secret rows, %+v", public, secret, done)
		}
		list, err := ann.Submissions(ctx, "sort", 10, 0)
		if err != nil || len(list) != 1 || list[0].ID != accepted.ID || len(list[0].Runs) != 3 {
			t.Errorf("the list = %+v, %v, want one with three runs", list, err)
		}
		if list, err := ann.Submissions(ctx, "", 0, 1); err != nil || len(list) != 0 {
			t.Errorf("the list from 1 on = %+v, %v", list, err)
		}
		ranked := decode[[]api.RankedSubmission](t, r.ask(t, "", "GET", "/submissions/sort/H100?limit=5&offset=0", nil))
		if len(ranked) != 1 || ranked[0].Rank != 1 || ranked[0].UserID != 7.0 || ranked[0].UserName != "ann" || ranked[0].SubmissionScore != 1e-6 || ranked[0].GPUType != "H100" || ranked[0].LeaderboardName != "sort" {
			t.Errorf("the ranking = %+v", ranked)
		}
		for path, want := range map[string]string{"/submission_count/sort/H100": `{"count":1}`, "/submission_count/sort/B200": `{"count":0}`, "/submission_count/sort/H100?user_id=7": `{"count":1}`, "/submission_count/sort/H100?user_id=8": `{"count":0}`} {
			if got := r.ask(t, "", "GET", path, nil); strings.TrimSpace(got.body) != want {
				t.Errorf("%s = %s, want %s", path, got.body, want)
			}
		}
		if err := ann.Delete(ctx, accepted.ID); err != nil {
			t.Error(err)
		}
		var refusal *popcorn.Refusal
		if _, err := ann.Submission(ctx, accepted.ID); !errors.As(err, &refusal) || refusal.Status != 404 {
			t.Errorf("after deleting it: %v, want 404", err)
		}
	})
}

// A wrong submission ends as Kernelbot's does: a test's is a success of the machinery,
// a ranked one failed, with the reason.
func TestPopcornLearnsWhatFailed(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		for mode, want := range map[string]string{"test": "", "leaderboard": "public run failed on H100"} {
			accepted, err := r.client("ann").Submit(ctx, "sort", "H100", mode, "a.py", code)
			if err != nil {
				t.Fatal(err)
			}
			servertest.Evaluate(t, r.s, fails)
			done, err := r.client("ann").Wait(ctx, accepted.ID)
			var ended *popcorn.Ended
			if want == "" && (err != nil || done.Runs[0].Passed) || want != "" && (!errors.As(err, &ended) || ended.Status != "failed") {
				t.Errorf("mode %s: %+v, %v", mode, done, err)
			}
		}
		accepted, err := r.client("ann").Submit(ctx, "sort", "H100", "test", "a.py", code)
		if err != nil {
			t.Fatal(err)
		}
		servertest.Evaluate(t, r.s, func(store.PlannedRun) *schema.Result { return &schema.Result{Error: "the machine burns"} })
		var ended *popcorn.Ended
		if _, err := r.client("ann").Wait(ctx, accepted.ID); !errors.As(err, &ended) || !strings.Contains(ended.Detail, "the machine burns") {
			t.Errorf("trouble: %v", err)
		}
	})
}

// What is refused, in which words, and with which status.
func TestPopcornIsRefused(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		late := servertest.Board("late")
		late.Deadline = time.Now().Add(-time.Hour)
		full := servertest.Board("full")
		full.Limits = []store.Limit{{Category: schema.ModeTest, PerHour: 0}}
		servertest.Save(t, r.s, late, full)
		if err := r.s.Ban(ctx, "9", true); err != nil {
			t.Fatal(err)
		}
		ann := r.client("ann")
		for _, c := range []struct {
			name             string
			client           *popcorn.Client
			board, gpu, mode string
			file             string
			code             string
			status           int
			detail           string
		}{
			{"no header", &popcorn.Client{URL: r.URL}, "sort", "H100", "test", "a.py", "x", 400, "X-Popcorn-Cli-Id"},
			{"unknown id", &popcorn.Client{URL: r.URL, CLIID: "nobody"}, "sort", "H100", "test", "a.py", "x", 401, "credentials"},
			{"unknown mode", ann, "sort", "H100", "fast", "a.py", "x", 400, "mode"},
			{"private mode", ann, "sort", "H100", "private", "a.py", "x", 400, "mode"},
			{"GPU of another board", ann, "sort", "T4", "test", "a.py", "x", 400, "has B200, H100"},
			{"GPU in another case", ann, "sort", "h100", "test", "a.py", "x", 400, "has B200, H100"},
			{"unknown board", ann, "none", "H100", "test", "a.py", "x", 404, "unknown board"},
			{"empty file", ann, "sort", "H100", "test", "a.py", "", 400, "empty"},
			{"not UTF-8", ann, "sort", "H100", "test", "a.py", "\xff", 400, "UTF-8"},
			{"U+0000", ann, "sort", "H100", "test", "a.py", "a\x00", 400, "U+0000"},
			{"too large", ann, "sort", "H100", "test", "a.py", strings.Repeat("x", 1_000_001), 413, "1000000 bytes"},
			{"far too large", ann, "sort", "H100", "test", "a.py", strings.Repeat("x", 3_000_000), 413, "bytes"},
			{"another extension", ann, "sort", "H100", "test", "a.exe", "x", 400, ".py"},
			{"no name but an extension", ann, "sort", "H100", "test", ".py", "x", 400, "file name"},
			{"directive contradicts", ann, "sort", "H100", "test", "a.py", "#!POPCORN leaderboard other\n", 400, "the file says"},
			{"directive is wrong", ann, "sort", "H100", "test", "a.py", "#!POPCORN\n", 400, "!POPCORN"},
			{"closed board", ann, "dark", "H100", "test", "a.py", "x", 403, "no invite"},
			{"banned", r.client("eve"), "sort", "H100", "test", "a.py", "x", 403, "any more"},
			{"deadline", ann, "late", "H100", "test", "a.py", "x", 400, "deadline"},
			{"over the limit", ann, "full", "H100", "test", "a.py", "x", 429, "limit reached"},
		} {
			_, plain := c.client.Submit(ctx, c.board, c.gpu, c.mode, c.file, []byte(c.code))
			_, stream := c.client.Stream(ctx, c.board, c.gpu, c.mode, c.file, []byte(c.code))
			for route, err := range map[string]error{"/submission": plain, "stream": stream} {
				var refusal *popcorn.Refusal
				if !errors.As(err, &refusal) || refusal.Status != c.status || !strings.Contains(refusal.Detail, c.detail) {
					t.Errorf("%s, %s route: %v, want %d with %q", c.name, route, err, c.status, c.detail)
				} else if c.status == 429 && refusal.RetryAfter == "" {
					t.Errorf("%s, %s route: no Retry-After", c.name, route)
				}
			}
		}
		got := r.ask(t, "ann", "POST", "/submission/sort/H100/test", form{"multipart/form-data; boundary=XXXX", "--XXXX\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n--XXXX--\r\n"})
		if problem := decode[struct{ Detail []api.FieldError }](t, got); got.status != 422 || len(problem.Detail) != 1 || problem.Detail[0].Loc[1] != "file" || problem.Detail[0].Type != "missing" {
			t.Errorf("no file: %d %s, want 422 with a list", got.status, got.body)
		}
		if _, err := ann.Admin(ctx, "POST", "/admin/stop", nil); err != nil {
			t.Fatal(err)
		}
		var refusal *popcorn.Refusal
		if _, err := ann.Submit(ctx, "sort", "H100", "test", "a.py", code); !errors.As(err, &refusal) || refusal.Status != 400 || !strings.Contains(refusal.Detail, "no submissions are taken") {
			t.Errorf("stopped: %v", err)
		}
		if stats, err := r.s.Stats(ctx); err != nil || stats.Submissions != 0 {
			t.Errorf("%d submissions are kept after all that, %v, want none", stats.Submissions, err)
		}
	})
}

func TestPopcornSmallRoutes(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		ann := r.client("ann")
		boards, err := ann.Leaderboards(ctx)
		if err != nil || len(boards) != 1 || boards[0].Name != "sort" || strings.Join(boards[0].GPUs, " ") != "B200 H100" {
			t.Errorf("Leaderboards = %+v, %v, want sort alone", boards, err)
		}
		made, err := ann.Admin(ctx, "POST", "/admin/invites", map[string]any{"leaderboards": []string{"dark"}, "count": 1})
		if err != nil {
			t.Fatal(err)
		}
		invite := made["codes"].([]any)[0].(string)
		if boards, err := ann.Join(ctx, invite); err != nil || len(boards) != 1 || boards[0] != "dark" {
			t.Errorf("Join = %v, %v", boards, err)
		}
		var refusal *popcorn.Refusal
		if _, err := r.client("bob").Join(ctx, invite); !errors.As(err, &refusal) || refusal.Status != 409 {
			t.Errorf("Join with an invite of somebody else's: %v, want 409", err)
		}
		if _, err := r.client("bob").Join(ctx, "nonsense"); !errors.As(err, &refusal) || refusal.Status != 404 {
			t.Errorf("Join with no invite: %v, want 404", err)
		}
		if boards, err := ann.Leaderboards(ctx); err != nil || len(boards) != 2 {
			t.Errorf("after Join, Leaderboards = %+v, %v", boards, err)
		}
		if gpus, err := ann.GPUs(ctx, "dark"); err != nil || len(gpus) != 2 {
			t.Errorf("GPUs of a closed board, invited: %v, %v", gpus, err)
		}
		if _, err := r.client("bob").GPUs(ctx, "dark"); !errors.As(err, &refusal) || refusal.Status != 404 {
			t.Errorf("GPUs of a closed board, not invited: %v, want 404", err)
		}
		if id, err := ann.Init(ctx, "github"); err != nil || len(id) < 16 {
			t.Errorf("Init = %d characters, %v", len(id), err)
		}
		if _, err := ann.Init(ctx, "gitlab"); !errors.As(err, &refusal) || refusal.Status != 400 {
			t.Errorf("Init at an unknown provider: %v", err)
		}
		r.q.Lines = []backend.GPUStatus{{GPU: "H100", Waiting: 4, Running: 1, Known: true, Agents: 3, Busy: 1}, {GPU: "T4", Off: "not lent"}}
		if got := r.ask(t, "", "GET", "/runner_queue/H100", nil); strings.TrimSpace(got.body) != `{"runner":"Buildkite","gpu":"H100","queued_jobs":4,"running_jobs":1,"available_runners":2,"status":"available","error":null}` {
			t.Errorf("the queue = %s", got.body)
		}
		if got := r.ask(t, "", "GET", "/runner_queue/T4", nil); !strings.Contains(got.body, `"available_runners":null,"status":"unavailable","error":"not lent"`) {
			t.Errorf("the queue of what is switched off = %s", got.body)
		}
	})
}

func TestPopcornAdmin(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		ann := r.client("ann")
		accepted, err := ann.Submit(ctx, "sort", "H100", "leaderboard", "a.py", code)
		if err != nil {
			t.Fatal(err)
		}
		servertest.Evaluate(t, r.s, nil)
		id := fmt.Sprint(accepted.ID)
		for _, c := range []struct {
			method, path string
			body         any
			want         string // in the answer, as Go prints it
		}{
			{"POST", "/admin/start", nil, "accepts_jobs:true"},
			{"GET", "/admin/stats", nil, "num_submissions:1"},
			{"GET", "/admin/stats?last_day_only=true", nil, "num_submissions:1"},
			{"GET", "/admin/stats?leaderboard_name=dark", nil, "num_submissions:0"},
			{"GET", "/admin/submissions/" + id, nil, "submission_id:" + id},
			{"GET", "/admin/leaderboards/Sort/submissions", nil, "submission_ids:[" + id + "]"},
			{"POST", "/admin/leaderboards/sort/visibility", map[string]string{"visibility": "closed"}, "visibility:closed"},
			{"PUT", "/admin/leaderboards/sort/rate-limits", map[string]any{"mode_category": "test", "max_submissions_per_hour": 3}, "max_submissions_per_hour:3"},
			{"PUT", "/admin/leaderboards/sort/rate-limits", map[string]any{"mode_category": "leaderboard", "max_submissions_per_hour": 2}, "max_submissions_per_hour:2"},
			{"GET", "/admin/leaderboards/sort/rate-limits", nil, "max_submissions_per_hour:3"},
			{"DELETE", "/admin/leaderboards/sort/rate-limits/test", nil, "mode_category:test"},
			{"POST", "/admin/invites", map[string]any{"leaderboard": "sort", "count": 2}, "codes:["},
			{"GET", "/admin/leaderboards/sort/invites", nil, "invites:["},
			{"POST", "/admin/ban/8", nil, "banned:true"},
			{"DELETE", "/admin/ban/8", nil, "banned:false"},
			{"DELETE", "/admin/submissions/" + id, nil, "submission_id:" + id},
			{"DELETE", "/admin/leaderboards/sort?force=true", nil, "force:true"},
		} {
			if got, err := ann.Admin(ctx, c.method, c.path, c.body); err != nil || !strings.Contains(fmt.Sprint(got), c.want) {
				t.Errorf("%s %s = %v, %v, want %s", c.method, c.path, got, err, c.want)
			}
			for as, want := range map[string]int{"": 401, "ann": 403} {
				if got := r.ask(t, as, c.method, c.path, c.body); got.status != want {
					t.Errorf("%s %s as %q: %d, want %d", c.method, c.path, as, got.status, want)
				}
			}
		}
		var refusal *popcorn.Refusal
		for _, path := range []string{"/admin/leaderboards", "/admin/update-problems", "/admin/export-hf"} {
			if _, err := ann.Admin(ctx, "POST", path, map[string]string{}); !errors.As(err, &refusal) || refusal.Status != http.StatusNotImplemented || !strings.Contains(refusal.Detail, "kbserve ") {
				t.Errorf("%s: %v, want 501 and what to do instead", path, err)
			}
		}
	})
}

// With the admin's token and a CLI id one submits after the deadline.
func TestAdminSubmitsLate(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	over := func(b *store.Board) error { b.Deadline = time.Now().Add(-time.Hour); return nil }
	if _, err := r.s.SetBoard(context.Background(), "sort", over, store.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	body := upload("a.py", "x")
	req, err := http.NewRequest("POST", r.URL+"/admin/submission/sort/H100/test", strings.NewReader(body.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", body.kind)
	r.sign(req, "admin")
	r.sign(req, "ann")
	if got := r.send(t, req); got.status != http.StatusAccepted {
		t.Errorf("with both: %d %s, want 202", got.status, got.body)
	}
	if got := r.ask(t, "admin", "POST", "/admin/submission/sort/H100/test", body); got.status != http.StatusForbidden {
		t.Errorf("with the token alone: %d %s, want 403", got.status, got.body)
	}
}

// Many submit at once: each user's limit holds to the submission, nobody gets an error
// of ours, and every answer's submission is there.
func TestManySubmitAtOnce(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		limited := func(b *store.Board) error { b.Limits = []store.Limit{{Category: schema.ModeTest, PerHour: 3}}; return nil }
		if _, err := r.s.SetBoard(ctx, "sort", limited, store.SetOptions{}); err != nil {
			t.Fatal(err)
		}
		type outcome struct {
			user string
			id   int64
			err  error
		}
		all := make(chan outcome)
		for user := range r.users {
			for range 8 {
				go func() {
					accepted, err := r.client(user).Submit(ctx, "sort", "H100", "test", "a.py", code)
					o := outcome{user: user, err: err}
					if err == nil {
						o.id = accepted.ID
					}
					all <- o
				}()
			}
		}
		accepted, ids := map[string]int{}, map[int64]bool{}
		for range 8 * len(r.users) {
			o := <-all
			var refusal *popcorn.Refusal
			switch {
			case o.err == nil:
				accepted[o.user]++
				ids[o.id] = true
			case !errors.As(o.err, &refusal) || refusal.Status != 429:
				t.Errorf("%s: %v", o.user, o.err)
			}
		}
		stats, err := r.s.Stats(ctx)
		if err != nil || accepted["ann"] != 3 || accepted["bob"] != 3 || accepted["eve"] != 3 || len(ids) != 9 || stats.Submissions != 9 {
			t.Errorf("accepted were %v, %d ids, %d are kept, %v; want 3 of each", accepted, len(ids), stats.Submissions, err)
		}
	})
}
