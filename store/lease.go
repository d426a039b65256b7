package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/queue"
)

// States of a planned run, in their order. From creating on there may be a build
// at Buildkite, so that whoever takes such a run looks for it before making one.
const (
	StateHeld     = "held" // its submission waits for a decision, see [Store.Decide]
	StatePlanned  = "planned"
	StateCreating = "creating"
	StateRunning  = "running" // its build's number is known
	StateFinished = "finished"
)

// ErrLeaseLost says that a planned run belongs to somebody else by now, or has
// finished: whoever gets it must leave the run alone.
var ErrLeaseLost = errors.New("the lease of this planned run is lost")

// A PlannedRun is one evaluation that was promised to a submitter, held by a
// lease: until Until nobody else gets it. Its JSON is what kbserve prints.
type PlannedRun struct {
	RunID      string `json:"run_id"`
	Submission int64  `json:"-"`
	UserID     string `json:"-"`
	Board      string `json:"-"`
	GPU        string `json:"gpu_type"`
	Mode       string `json:"mode"`
	Secret     bool   `json:"secret"`
	Priority   int    `json:"-"` // smaller goes first, see [queue.PriorityBulk]

	State       string `json:"state"`
	BuildNumber int64  `json:"build_number"` // 0: not known
	BuildID     string `json:"-"`
	NoResult    bool   `json:"no_result"` // it finished without one
	Outcome     string `json:"outcome"`   // name of one of schema.Outcomes; "" until it has finished, and in older rows

	Created time.Time `json:"-"` // it was planned
	Changed time.Time `json:"-"` // it came into its state, or its lease changed hands
	Started time.Time `json:"-"` // somebody began to make its build; zero: nobody has

	Fence int64     `json:"-"` // rises with every claim
	Until time.Time `json:"-"`
}

// Claim takes at most n runs that nobody holds, for as long as hold: first those
// that somebody had begun, then those that wait, in their order (see [Store.Line]).
// Of those on a GPU type, no more are taken than room says may be under way there
// at once; nil is no bound, and a GPU type that room does not name gets none.
func (s *Store) Claim(ctx context.Context, owner string, n int, room map[string]int, hold time.Duration) (claimed []PlannedRun, err error) {
	err = s.change(ctx, "claiming planned runs", func(t *tx) {
		if s.db.Kind == database.Postgres { // two that count what is under way would both take the last place
			t.exec(`SELECT pg_advisory_xact_lock($1)`, claimLock)
		}
		now := t.clock()
		claimed = t.plannedRuns(`WHERE p.state IN ('creating', 'running') AND p.free_at <= $1 ORDER BY p.started_at, p.run_id LIMIT $2`, now, n)
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

// FreeAfterClockJump frees runs whose free_at is later than now plus ahead, because the
// clock was set back. It returns how many. A former holder that still works on one of
// them is stopped by the next holder's fence, or renews its lease.
func (s *Store) FreeAfterClockJump(ctx context.Context, ahead time.Duration) (n int64, err error) {
	err = s.change(ctx, "freeing runs after a jump of the clock", func(t *tx) {
		now := t.clock()
		if n = t.exec(`UPDATE own.planned_run SET free_at = $1 WHERE state <> 'finished' AND free_at > $2`, now, now.Add(ahead)); n > 0 {
			t.tell(Signal{Kind: SignalPlanned})
		}
	})
	return n, err
}

const claimLock = 0x6b62736572766501 // of those who claim, among PostgreSQL's advisory locks

// next chooses among the runs that wait.
func (t *tx) next(n int, room map[string]int, now time.Time) []PlannedRun {
	left := maps.Clone(room)
	var gpu string
	var under int
	t.each(dest{&gpu, &under}, func() {
		if left != nil {
			left[gpu] -= under
		}
	}, `SELECT gpu, count(*) FROM own.planned_run WHERE state IN ('creating', 'running') OR state = 'planned' AND free_at > $1 GROUP BY gpu`, now)
	waiting := t.waiting(n, left, now)
	if len(waiting) == 0 {
		return nil
	}
	t.exec(`DELETE FROM own.begun_run WHERE begun_at <= $1`, now.Add(-queue.ShareWindow))
	return queue.Take(waiting, n, left, queued, t.begun(now))
}

// waiting reads the runs that wait on GPU types with places left, nil being all. Of one
// user's runs on a GPU type in a band, the first n are enough: a long line is not read
// as a whole.
func (t *tx) waiting(n int, left map[string]int, now time.Time) []PlannedRun {
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
	return t.plannedRuns(`JOIN (
			SELECT w.run_id, row_number() OVER (PARTITION BY o.user_id, w.gpu, CASE WHEN w.priority < 0 THEN 0 WHEN w.priority < $3 THEN 1 ELSE 2 END ORDER BY w.priority, w.created_at, w.run_id) AS place
			FROM own.planned_run w JOIN lb.submission o ON o.id = w.submission_id WHERE w.state = 'planned' AND w.free_at <= $1`+only+`
		) f ON f.run_id = p.run_id WHERE f.place <= $2`, args...)
}

// Creating says that a build is about to be made for the run, and that its
// submission is being worked on. It is committed before the request is sent.
//
// Errors of this and the following methods: [ErrLeaseLost].
func (s *Store) Creating(ctx context.Context, p PlannedRun) error {
	return s.change(ctx, "marking a run as creating", func(t *tx) {
		// First, because it locks the user's row, which CancelSubmission locks before it
		// changes planned runs.
		t.exec(`INSERT INTO own.begun_run (run_id, user_id, gpu, begun_at) VALUES ($1, $2, $3, $4) ON CONFLICT (run_id) DO NOTHING`,
			p.RunID, p.UserID, p.GPU, cmp.Or(p.Started, s.now()))
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

// queued describes a planned run to the queue.
func queued(p PlannedRun) queue.Run {
	return queue.Run{Share: queue.Share{User: p.UserID, GPU: p.GPU}, ID: p.RunID, Priority: p.Priority, Created: p.Created}
}

// plannedRuns reads planned runs, p; which is what stands behind the tables.
func (t *tx) plannedRuns(which string, args ...any) (runs []PlannedRun) {
	var p PlannedRun
	t.each(dest{&p.RunID, &p.Submission, &p.UserID, &p.Board, &p.GPU, &p.Mode, &p.Secret, &p.Priority, &p.State, &p.BuildNumber, &p.BuildID, &p.Fence, &p.Created, &p.Changed, &p.Started, &p.NoResult, &p.Outcome}, func() { runs = append(runs, p) },
		`SELECT p.run_id, p.submission_id, s.user_id, l.name, p.gpu, p.mode, p.secret, p.priority, p.state, p.build_number, p.build_id, p.fence, p.created_at, p.changed_at, p.started_at, p.outcome <> '', p.result_outcome
		FROM own.planned_run p JOIN lb.submission s ON s.id = p.submission_id JOIN lb.leaderboard l ON l.id = s.leaderboard_id `+which, args...)
	return runs
}

// Line lists everything that has not finished: what was begun, the oldest first,
// and then what waits, in the order in which it goes on its GPU type.
func (s *Store) Line(ctx context.Context) (line []PlannedRun, err error) {
	err = s.snapshot(ctx, "reading the line", func(t *tx) {
		line = t.plannedRuns(`WHERE p.state IN ('creating', 'running') ORDER BY p.started_at, p.run_id`)
		line = append(line, queue.Order(t.plannedRuns(`WHERE p.state = 'planned'`), queued, t.begun(s.now()))...)
	})
	return line, err
}

// begun counts the runs that each user began on each GPU type within the last hour.
// A table of its own holds them, because planned runs are deleted with their submission:
// a user must not get a better place by deleting submissions.
func (t *tx) begun(now time.Time) map[queue.Share]int {
	begun := map[queue.Share]int{}
	var target queue.Share
	var n int
	t.each(dest{&target.User, &target.GPU, &n}, func() { begun[target] = n }, `SELECT user_id, gpu, count(*) FROM own.begun_run WHERE begun_at > $1 GROUP BY 1, 2`, now.Add(-queue.ShareWindow))
	return begun
}

// Typical returns how long runs on a GPU type in a mode took lately, from their
// beginning to their result, in the middle of the last 50; 0 when there were none.
func (s *Store) Typical(ctx context.Context, gpu, mode string) (time.Duration, error) {
	var took []time.Duration
	err := s.read(ctx, "reading how long runs took", func(t *tx) {
		var began, ended time.Time
		t.each(dest{&began, &ended}, func() { took = append(took, ended.Sub(began)) }, `SELECT started_at, finished_at FROM own.planned_run WHERE gpu = $1 AND mode = $2 AND finished_at IS NOT NULL AND started_at IS NOT NULL ORDER BY finished_at DESC LIMIT 50`, gpu, mode)
	})
	if err != nil || len(took) == 0 {
		return 0, err
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// A Stuck run has not finished for long. Without a run's id it is a submission that
// is not done though nothing of it is planned: nobody will end it.
type Stuck struct {
	RunID      string
	Submission int64
	Board      string
	Deadline   time.Time // of the board
	GPU, Mode  string
	Secret     bool

	State       string
	BuildNumber int64 // 0: not known
	LeaseOwner  string
	Until       time.Time // nobody else takes the run before; in the past: its owner is gone
	Created     time.Time // it was planned, or came
	Changed     time.Time // of its state, or of its lease
}

// Stuck lists what is older than age and has not finished, the oldest first.
func (s *Store) Stuck(ctx context.Context, age time.Duration) (list []Stuck, err error) {
	err = s.snapshot(ctx, "looking for what is stuck", func(t *tx) {
		list = nil
		var x Stuck
		t.each(dest{&x.RunID, &x.Submission, &x.Board, &x.Deadline, &x.GPU, &x.Mode, &x.Secret, &x.State, &x.BuildNumber, &x.LeaseOwner, &x.Until, &x.Created, &x.Changed}, func() { list = append(list, x) }, `SELECT p.run_id, s.id, l.name, l.deadline, p.gpu, p.mode, p.secret, p.state, p.build_number, p.lease_owner, p.free_at, p.created_at, p.changed_at
			FROM own.planned_run p JOIN lb.submission s ON s.id = p.submission_id JOIN lb.leaderboard l ON l.id = s.leaderboard_id
			WHERE p.state <> 'finished' AND p.created_at < $1
			UNION ALL
			SELECT '', s.id, l.name, l.deadline, coalesce(a.gpu, ''), coalesce(a.mode, s.mode_category, ''), false, '', 0, '', s.submission_time, s.submission_time, coalesce(j.last_heartbeat, s.submission_time)
			FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id LEFT JOIN own.accepted a ON a.submission_id = s.id LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id
			WHERE NOT coalesce(s.done, false) AND s.submission_time < $1 AND NOT EXISTS (SELECT 1 FROM own.planned_run p WHERE p.submission_id = s.id AND p.state <> 'finished')
			ORDER BY 12, 1, 2`, s.now().Add(-age))
	})
	return list, err
}
