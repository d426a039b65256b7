package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/database"
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

// PlanBoard plans an evaluation of every submission that ranks on a board, the
// best first, and returns how many those are. Their results take the place of the
// ones there are, which count until then.
//
// Errors: [ErrNotFound].
func (s *Store) PlanBoard(ctx context.Context, board string, priority int) (count int, err error) {
	err = s.change(ctx, "planning runs of a board", func(t *tx) {
		count = 0
		var all []job
		j := job{mode: schema.ModeLeaderboard}
		t.each(dest{&j.submission, &j.gpu}, func() { all = append(all, j) }, `SELECT v.submission_id, v.gpu FROM own.verdict v WHERE v.ranks AND v.leaderboard_id = $1
			AND NOT EXISTS (SELECT 1 FROM own.planned_run p WHERE p.submission_id = v.submission_id AND p.gpu = v.gpu AND p.state <> 'finished') ORDER BY v.score, v.submission_id`, t.named(board))
		t.plan(all, priority, againInstead)
		if count = len(all); count > 0 {
			t.tell(Signal{Kind: SignalPlanned})
		}
	})
	return count, err
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
