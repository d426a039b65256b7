package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// Target returns the GPU type and mode that a submission was handed in for. Of
// one that Kernelbot accepted they are those of its runs; "" is not known.
//
// Errors: [ErrNotFound].
func (s *Store) Target(ctx context.Context, submission int64) (gpu, mode string, err error) {
	err = s.snapshot(ctx, fmt.Sprintf("reading submission %d", submission), func(t *tx) {
		gpu, mode = t.target(submission)
	})
	return gpu, mode, err
}

func (t *tx) target(submission int64) (gpu, mode string) {
	var kind string
	t.get(dest{&gpu, &mode, &kind}, `SELECT coalesce(a.gpu, ''), coalesce(a.mode, ''), coalesce(s.mode_category, '') FROM lb.submission s LEFT JOIN own.accepted a ON a.submission_id = s.id WHERE s.id = $1`, submission)
	if gpu != "" {
		return gpu, mode
	}
	t.get(dest{&gpu, &mode}, `SELECT coalesce(min(runner), ''), coalesce(min(mode), '') FROM lb.runs WHERE submission_id = $1`, submission)
	if kind == schema.ModeLeaderboard {
		mode = kind // its first row is of another phase
	}
	return gpu, mode
}

// PlannedRuns lists what was planned for a submission, finished or not, the public
// ones first and of those the latest.
func (s *Store) PlannedRuns(ctx context.Context, submission int64) (runs []PlannedRun, err error) {
	err = s.read(ctx, "listing planned runs", func(t *tx) {
		runs = t.plannedRuns(`WHERE p.submission_id = $1 ORDER BY p.secret, p.created_at DESC, p.run_id`, submission)
	})
	return runs, err
}

// Plan plans a further evaluation of a submission that is done, on gpu or, with
// "", where it was evaluated before. Its runs count beside those there are.
//
// Errors: [ErrNotFound]; [*Refusal] for one that is not done, or that nobody may
// evaluate any more.
func (s *Store) Plan(ctx context.Context, submission int64, gpu string, priority int) error {
	return s.change(ctx, fmt.Sprintf("planning runs of submission %d", submission), func(t *tx) {
		t.lockOwner(submission)
		var done, hacked bool
		t.get(dest{&done, &hacked}, `SELECT coalesce(s.done, false) AND NOT EXISTS (SELECT 1 FROM own.planned_run p WHERE p.submission_id = s.id AND p.state <> 'finished'), coalesce(s.status, '') = 'hacked' FROM lb.submission s WHERE s.id = $1`, submission)
		where, mode := t.target(submission)
		gpu = cmp.Or(gpu, where)
		switch {
		case !done:
			t.refuse(Invalid, "submission %d has not finished", submission)
		case hacked:
			t.refuse(Invalid, "submission %d is marked as hacked", submission)
		case gpu == "" || mode == "":
			t.refuse(Invalid, "submission %d: it is not known what it was for", submission)
		}
		t.plan([]job{{submission, gpu, mode}}, priority, againBeside)
		t.judge(submission) // on another GPU type, that it waits
		t.tell(Signal{Kind: SignalPlanned}, Signal{SignalSubmission, fmt.Sprint(submission)})
	})
}

// A Rejudging selects submissions of a board to evaluate once more, as after a
// change of its task. Empty fields select all.
type Rejudging struct {
	GPU, UserID  string
	Since, Until time.Time // when it came; Until itself does not count

	// Status is the job's, as of [Query]. With "", a submission is selected if it ranks; with
	// All, whether it ranks or not.
	Status string
	All    bool

	Priority int
	DryRun   bool // plans nothing
	By       Author
}

// A Rejudged says what [Store.Rejudge] has planned, or would.
type Rejudged struct {
	Submissions int           // a submission counts once for each GPU type
	Runs        int           // evaluations, public and secret
	Took        time.Duration // by such runs of late, on one GPU after the other; 0: unknown
}

// Rejudge plans an evaluation of every selected submission, those that rank first,
// the best of them first. The results replace the earlier ones, which count until then. It
// skips submissions that are being evaluated, that are marked as hacked, or whose
// GPU type and mode are unknown.
//
// The board's history says that it was done, and [Store.RejudgeReport] what came of it.
//
// Errors: [ErrNotFound]; [*Refusal] with Invalid.
func (s *Store) Rejudge(ctx context.Context, board string, which Rejudging) (out Rejudged, err error) {
	if which.Status != "" && !slices.Contains([]string{StatusSucceeded, StatusFailed, StatusTimedOut}, which.Status) {
		return out, NewRefusal(Invalid, "status: got %s, want %s, %s or %s", text.Quote(text.Shorten(which.Status, 40)), StatusSucceeded, StatusFailed, StatusTimedOut)
	}
	var all []job
	err = s.change(ctx, "planning runs of board "+text.Quote(text.Shorten(board, 100)), func(t *tx) {
		id := t.named(board)
		all = t.selected(id, which)
		if which.DryRun || len(all) == 0 {
			return
		}
		t.lockOwners(id)
		t.keepRanking(id, which.By)
		t.plan(all, which.Priority, againInstead)
		if which.All || which.Status != "" {
			for _, j := range all { // those that do not rank wait now
				t.judge(j.submission)
			}
		}
		t.record(id, []Edit{{"results", "", fmt.Sprintf("evaluated again, submissions: %d", len(all))}}, which.By)
		t.tell(Signal{Kind: SignalPlanned})
	})
	if err != nil {
		return out, err
	}
	out = Rejudged{Submissions: len(all)}
	counts := map[job]int{}
	for _, j := range all {
		runs := 1
		if j.mode == schema.ModeLeaderboard {
			runs = 2
		}
		out.Runs += runs
		counts[job{gpu: j.gpu, mode: j.mode}] += runs
	}
	for j, n := range counts {
		typical, err := s.Typical(ctx, j.gpu, j.mode)
		if err != nil {
			return out, err
		}
		out.Took += time.Duration(n) * typical
	}
	return out, nil
}

// selected lists what is to be evaluated once more.
func (t *tx) selected(board int64, which Rejudging) (all []job) {
	until := which.Until
	if until.IsZero() {
		until = t.now().Add(time.Hour)
	}
	var j job
	t.each(dest{&j.submission, &j.gpu, &j.mode}, func() { all = append(all, j) }, `SELECT s.id, k.gpu, k.mode FROM lb.submission s
		JOIN (SELECT submission_id, gpu, mode FROM own.accepted UNION ALL SELECT submission_id, gpu, 'leaderboard' FROM own.verdict o
			WHERE NOT EXISTS (SELECT 1 FROM own.accepted a WHERE a.submission_id = o.submission_id AND a.gpu = o.gpu)) k ON k.submission_id = s.id
		LEFT JOIN own.verdict v ON v.submission_id = s.id AND v.gpu = k.gpu LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id
		WHERE s.leaderboard_id = $1 AND s.done AND coalesce(s.status, '') <> 'hacked' AND coalesce(j.status, '') <> 'hacked'
			AND NOT EXISTS (SELECT 1 FROM own.planned_run p WHERE p.submission_id = s.id AND p.gpu = k.gpu AND p.state <> 'finished')
			AND ($2 = '' OR k.gpu = $2) AND ($3 = '' OR s.user_id = $3) AND s.submission_time >= $4 AND s.submission_time < $5
			AND CASE WHEN $6 <> '' THEN coalesce(j.status, '') = $6 WHEN $7 THEN true ELSE coalesce(v.ranks, false) END
		ORDER BY CASE WHEN v.ranks THEN 0 ELSE 1 END, v.score, s.id`, board, which.GPU, which.UserID, which.Since, until, which.Status, which.All)
	return all
}

// keepRanking keeps a board's ranking on all GPU types as it is before a re-evaluation.
// While an earlier one has open runs, the ranking before that one stays.
func (t *tx) keepRanking(board int64, by Author) {
	if value[bool](t, `SELECT count(*) > 0 FROM own.planned_run p JOIN lb.submission s ON s.id = p.submission_id WHERE s.leaderboard_id = $1 AND p.again = 'instead' AND p.state <> 'finished'`, board) {
		return
	}
	before, err := json.Marshal(t.currentRankings(board))
	if err != nil {
		t.fail(err)
	}
	t.exec(`INSERT INTO own.rejudging (leaderboard_id, started_at, author, reason, ranking) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (leaderboard_id) DO UPDATE SET started_at = excluded.started_at, author = excluded.author, reason = excluded.reason, ranking = excluded.ranking`,
		board, t.now(), text.Line(by.Name, 100), text.Line(by.Reason, maxError), string(before))
}

// currentRankings are a board's, by GPU type.
func (t *tx) currentRankings(board int64) map[string][]ranking.Entry {
	all := map[string][]ranking.Entry{}
	for _, gpu := range values[string](t, `SELECT DISTINCT gpu FROM own.standing WHERE leaderboard_id = $1`, board) {
		all[gpu] = t.ranking(boardGPU{board, gpu})
	}
	return all
}

// A RejudgeReport compares a board's ranking with that before its last re-evaluation.
type RejudgeReport struct {
	Started   time.Time  `json:"started"`
	Author    string     `json:"author"`
	Reason    string     `json:"reason"`
	Runs      int        `json:"runs"`      // that were planned
	OpenRuns  int        `json:"open_runs"` // that have not finished
	Movements []Movement `json:"movements"` // by GPU type and earlier rank
}

// A Movement is a user whose rank has changed.
type Movement struct {
	GPU      string   `json:"gpu_type"`
	UserID   string   `json:"user_id"`
	User     string   `json:"user_name"`
	OldRank  int      `json:"old_rank"`  // 0: did not rank
	Rank     int      `json:"rank"`      // 0: does not rank
	OldScore *float64 `json:"old_score"` // seconds; null: did not rank
	Score    *float64 `json:"score"`
}

// RejudgeReport says what the last re-evaluation of a board has changed so far.
//
// Errors: [ErrNotFound], also for a board that was never evaluated again.
func (s *Store) RejudgeReport(ctx context.Context, board string) (r RejudgeReport, err error) {
	err = s.snapshot(ctx, "reading the last re-evaluation of board "+text.Quote(text.Shorten(board, 100)), func(t *tx) {
		id := t.named(board)
		var kept string
		t.get(dest{&r.Started, &r.Author, &r.Reason, &kept}, `SELECT started_at, author, reason, ranking FROM own.rejudging WHERE leaderboard_id = $1`, id)
		t.get(dest{&r.Runs, &r.OpenRuns}, `SELECT count(*), count(CASE WHEN p.state <> 'finished' THEN 1 END) FROM own.planned_run p JOIN lb.submission s ON s.id = p.submission_id
			WHERE s.leaderboard_id = $1 AND p.again = 'instead' AND p.created_at >= $2`, id, r.Started)
		var before map[string][]ranking.Entry
		if t.err == nil {
			t.err = json.Unmarshal([]byte(kept), &before)
		}
		r.Movements = movements(before, t.currentRankings(id))
	})
	return r, err
}

// movements lists the users whose ranks differ.
func movements(before, now map[string][]ranking.Entry) []Movement {
	type userGPU struct{ gpu, user string }
	found := map[userGPU]*Movement{}
	entry := func(gpu string, e *ranking.Entry) *Movement {
		m := found[userGPU{gpu, e.UserID}]
		if m == nil {
			m = &Movement{GPU: gpu, UserID: e.UserID}
			found[userGPU{gpu, e.UserID}] = m
		}
		m.User = e.User
		return m
	}
	for gpu, list := range before {
		for _, e := range list {
			m := entry(gpu, &e)
			m.OldRank, m.OldScore = e.Rank, &e.Score
		}
	}
	for gpu, list := range now {
		for _, e := range list {
			m := entry(gpu, &e)
			m.Rank, m.Score = e.Rank, &e.Score
		}
	}
	moved := []Movement{}
	for _, m := range found {
		if m.Rank != m.OldRank {
			moved = append(moved, *m)
		}
	}
	slices.SortFunc(moved, func(a, b Movement) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.OldRank, b.OldRank), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.UserID, b.UserID))
	})
	return moved
}

// What a planned run of a submission that was done already is for; "" of a new one.
const (
	againBeside  = "beside"  // its runs count beside those there are
	againInstead = "instead" // they take their place
)

// A job is one evaluation to plan: a public run, and in mode leaderboard a secret
// one beside it.
type job struct {
	submission int64
	gpu, mode  string
}

// plan inserts the runs of evaluations, and returns their ids.
func (t *tx) plan(all []job, priority int, kind string) (ids []string) {
	now := t.now()
	var rows [][]any
	for _, j := range all {
		for _, secret := range []bool{false, true} {
			if secret && j.mode != schema.ModeLeaderboard {
				continue
			}
			id := database.NewID()
			ids = append(ids, id)
			rows = append(rows, []any{id, j.submission, j.gpu, j.mode, secret, priority, StatePlanned, now, now, now, kind})
		}
	}
	t.insert(`own.planned_run (run_id, submission_id, gpu, mode, secret, priority, state, free_at, created_at, changed_at, again)`, rows)
	return ids
}
