package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/queue"
)

// States of a planned run, in their order. From creating on there may be a build
// at Buildkite, so that whoever takes such a run looks for it before making one.
const (
	StatePlanned  = "planned"
	StateCreating = "creating"
	StateRunning  = "running" // its build's number is known
	StateFinished = "finished"
)

// ErrLeaseLost says that a planned run belongs to somebody else by now, or has
// finished: whoever gets it must leave the run alone.
var ErrLeaseLost = errors.New("the lease of this planned run is lost")

// A PlannedRun is one evaluation that was promised to a submitter, held by a
// lease: until Until nobody else gets it.
type PlannedRun struct {
	RunID      string
	Submission int64
	UserID     string
	Board      string
	GPU, Mode  string
	Secret     bool
	Priority   int // smaller goes first, see [queue.PriorityBulk]

	State       string
	BuildNumber int64 // 0: not known
	BuildID     string

	Created time.Time // it was planned
	Changed time.Time // it came into its state, or its lease changed hands
	Started time.Time // somebody began to make its build; zero: nobody has

	Fence int64 // rises with every claim
	Until time.Time
}

// Claim takes at most n runs that nobody holds, for as long as hold: first those
// that somebody had begun, then those that wait, in their order (see [Store.Line]).
// Of those on a GPU type, no more are taken than room says may be under way there
// at once; nil is no bound, and a GPU type that room does not name gets none.
func (s *Store) Claim(ctx context.Context, owner string, n int, room map[string]int, hold time.Duration) (claimed []PlannedRun, err error) {
	err = s.change(ctx, "claiming planned runs", func(t *tx) {
		claimed = nil
		if s.db.Kind == database.Postgres { // two that count what is under way would both take the last place
			t.exec(`SELECT pg_advisory_xact_lock($1)`, claimLock)
		}
		now := t.clock()
		var p PlannedRun
		t.each(p.columns(), func() { claimed = append(claimed, p) }, `SELECT `+plannedColumns+plannedFrom+`WHERE p.state IN ('creating', 'running') AND p.free_at <= $1 ORDER BY p.started_at, p.run_id LIMIT $2`, now, n)
		if len(claimed) < n {
			claimed = append(claimed, t.next(n-len(claimed), room, now)...)
		}
		for i := range claimed {
			p := &claimed[i]
			p.Fence++
			p.Until = now.Add(hold)
			t.exec(`UPDATE own.planned_run SET fence = $2, lease_owner = $3, free_at = $4, changed_at = $5 WHERE run_id = $1`, p.RunID, p.Fence, owner, p.Until, s.now())
		}
	})
	return claimed, err
}

const claimLock = 0x6b62736572766501 // of those who claim, among PostgreSQL's advisory locks

// next chooses among the runs that wait.
func (t *tx) next(n int, room map[string]int, now time.Time) (chosen []PlannedRun) {
	left := maps.Clone(room)
	var gpu string
	var under int
	t.each(to{&gpu, &under}, func() {
		if left != nil {
			left[gpu] -= under
		}
	}, `SELECT gpu, count(*) FROM own.planned_run WHERE state IN ('creating', 'running') OR state = 'planned' AND free_at > $1 GROUP BY gpu`, now)
	waiting := t.waiting(n, left, now)
	if len(waiting) == 0 {
		return nil
	}
	for _, p := range inTurn(waiting, t.begun(now)) {
		if len(chosen) == n {
			break
		}
		if room != nil {
			if left[p.GPU] <= 0 {
				continue
			}
			left[p.GPU]--
		}
		chosen = append(chosen, p)
	}
	return chosen
}

// waiting reads the runs that wait on GPU types with places left, nil being all. Of one
// user's runs on a GPU type in a band, the first n are enough: a long line is not read
// as a whole.
func (t *tx) waiting(n int, left map[string]int, now time.Time) (waiting []PlannedRun) {
	args, only := []any{now, n, queue.PriorityBulk}, ""
	for gpu, places := range left {
		if places > 0 {
			args = append(args, gpu)
			only += fmt.Sprintf(", $%d", len(args))
		}
	}
	if left != nil && only == "" {
		return nil
	} else if only != "" {
		only = " AND w.gpu IN (" + only[2:] + ")"
	}
	var p PlannedRun
	t.each(p.columns(), func() { waiting = append(waiting, p) }, `SELECT `+plannedColumns+plannedFrom+`JOIN (
			SELECT w.run_id, row_number() OVER (PARTITION BY o.user_id, w.gpu, CASE WHEN w.priority < 0 THEN 0 WHEN w.priority < $3 THEN 1 ELSE 2 END ORDER BY w.priority, w.created_at, w.run_id) AS place
			FROM own.planned_run w JOIN lb.submission o ON o.id = w.submission_id WHERE w.state = 'planned' AND w.free_at <= $1`+only+`
		) f ON f.run_id = p.run_id WHERE f.place <= $2`, args...)
	return waiting
}

// Creating says that a build is about to be made for the run, and that its
// submission is being worked on. It is committed before the request is sent.
//
// Errors of this and the following methods: [ErrLeaseLost].
func (s *Store) Creating(ctx context.Context, p PlannedRun) error {
	return s.change(ctx, "marking a run as creating", func(t *tx) {
		t.held(p, `state = 'creating', changed_at = $3, started_at = coalesce(started_at, $3)`, s.now())
		t.exec(`UPDATE lb.submission_job_status SET status = $2, last_heartbeat = $3 WHERE submission_id = $1 AND status IN ('initial', 'pending')`,
			p.Submission, StatusRunning, s.now())
		t.tell(submissionSignal(p.Submission))
	})
}

// Built keeps the build that was made or found for the run.
func (s *Store) Built(ctx context.Context, p PlannedRun, number int64, id string) error {
	return s.change(ctx, "keeping a run's build", func(t *tx) {
		t.held(p, `state = 'running', changed_at = $3, build_number = $4, build_id = $5`, s.now(), number, id)
		t.tell(submissionSignal(p.Submission))
	})
}

// Renew holds the run for as long as hold from now; hold 0 gives it back, and a
// negative one is an error. Its submission's heartbeat is now.
func (s *Store) Renew(ctx context.Context, p PlannedRun, hold time.Duration) error {
	if hold < 0 {
		return fmt.Errorf("renewing a lease: got %v, want 0 or more", hold)
	}
	return s.change(ctx, "renewing a lease", func(t *tx) {
		now := t.clock()
		t.held(p, `free_at = $3`, now.Add(hold))
		t.exec(`UPDATE lb.submission_job_status SET last_heartbeat = $2 WHERE submission_id = $1 AND status IN ('pending', 'running')`, p.Submission, now)
		if hold == 0 {
			t.tell(Signal{Kind: SignalPlanned})
		}
	})
}

// held changes a planned run if the lease still holds; args are $3 and on. The fence is what counts,
// not the clock: as long as nobody else has claimed the run, its holder may end
// what it began.
func (t *tx) held(p PlannedRun, set string, args ...any) {
	n := t.exec(`UPDATE own.planned_run SET `+set+` WHERE run_id = $1 AND fence = $2 AND state <> 'finished'`,
		append([]any{p.RunID, p.Fence}, args...)...)
	if n == 0 {
		t.fail(ErrLeaseLost)
	}
}
