package store

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
)

// Events that an organizer's hook gets.
const (
	EventAccepted = "submission.accepted" // it waits for the hook's decision
	EventDone     = "submission.done"
)

// Phases of a submission that a hook is asked about, in their order.
const (
	hookWaiting  = "waiting"  // the hook is asked until it decides
	hookHeld     = "held"     // the hook has answered that it or an admin decides later
	hookAccepted = "accepted" // the submission is being evaluated
	hookDone     = "done"     // the hook is told of the result
)

// A HookDelivery is one event that is due, held by a lease: no other instance gets it
// before the lease ends.
type HookDelivery struct {
	ID         string // the same for each try
	Event      string
	Submission int64
	Tries      int       // with this one
	Since      time.Time // the event was due for the first time

	fence int64
}

// awaitDecision makes a new submission wait for [Store.Decide].
func (t *tx) awaitDecision(submission int64) {
	now := t.clock()
	t.exec(`UPDATE own.planned_run SET state = $2 WHERE submission_id = $1`, submission, StateHeld)
	t.exec(`INSERT INTO own.hook (submission_id, delivery, phase, free_at, changed_at) VALUES ($1, $2, $3, $4, $4)`, submission, database.NewID(), hookWaiting, now)
}

// ClaimHookDeliveries takes at most n events that are due, the oldest first, for as
// long as lease.
func (s *Store) ClaimHookDeliveries(ctx context.Context, n int, lease time.Duration) (claimed []HookDelivery, err error) {
	var due []HookDelivery
	find := func(t *tx) {
		due = nil
		now := t.clock()
		var d HookDelivery
		var phase string
		var done bool
		t.each(dest{&d.Submission, &d.ID, &phase, &d.Tries, &d.fence, &d.Since, &done}, func() {
			d.Event = EventAccepted
			if done {
				d.Event = EventDone
			}
			if done && phase != hookDone {
				d.Tries, d.Since = 0, now
			}
			due = append(due, d)
		}, `SELECT h.submission_id, h.delivery, h.phase, h.tries, h.fence, h.changed_at, coalesce(s.done, false) FROM own.hook h JOIN lb.submission s ON s.id = h.submission_id
			WHERE h.free_at <= $1 AND (h.phase = 'waiting' OR s.done) ORDER BY h.free_at, h.submission_id LIMIT $2`, now, n)
	}
	const what = "claiming deliveries to the hook"
	if err := s.read(ctx, what, find); err != nil || len(due) == 0 {
		return nil, err
	}
	err = s.change(ctx, what, func(t *tx) {
		claimed = nil
		find(t)
		for _, d := range due {
			phase := hookWaiting
			if d.Event == EventDone {
				phase = hookDone
			}
			d.Tries++
			won := t.exec(`UPDATE own.hook SET phase = $3, tries = $4, changed_at = $5, free_at = $6, fence = fence + 1, error = CASE WHEN tries = 0 OR phase <> $3 THEN '' ELSE error END WHERE submission_id = $1 AND fence = $2`,
				d.Submission, d.fence, phase, d.Tries, d.Since, t.clock().Add(lease))
			if won == 0 {
				continue // another instance was faster
			}
			d.fence++
			d.ID += "-" + strings.TrimPrefix(d.Event, "submission.") // so that the two events of a submission differ
			claimed = append(claimed, d)
		}
	})
	return claimed, err
}

// RetryHookDelivery makes an event due again after a pause, and keeps why the last try
// failed. It changes nothing if the lease is lost.
func (s *Store) RetryHookDelivery(ctx context.Context, d HookDelivery, pause time.Duration, why string) error {
	return s.change(ctx, "putting off a delivery to the hook", func(t *tx) {
		t.exec(`UPDATE own.hook SET free_at = $3, error = $4 WHERE submission_id = $1 AND fence = $2`, d.Submission, d.fence, t.clock().Add(pause), text.Line(why, 300))
	})
}

// HoldSubmission keeps that the hook has answered and decides later: it is not asked
// again.
func (s *Store) HoldSubmission(ctx context.Context, d HookDelivery) error {
	return s.change(ctx, fmt.Sprintf("holding submission %d", d.Submission), func(t *tx) {
		t.exec(`UPDATE own.hook SET phase = 'held', free_at = $3, changed_at = $3, error = '' WHERE submission_id = $1 AND fence = $2 AND phase = 'waiting'`, d.Submission, d.fence, t.clock())
	})
}

// EndHookDelivery removes the event of a submission that is done: it was delivered, or
// is given up.
func (s *Store) EndHookDelivery(ctx context.Context, d HookDelivery) error {
	return s.change(ctx, "ending a delivery to the hook", func(t *tx) {
		t.exec(`DELETE FROM own.hook WHERE submission_id = $1 AND fence = $2 AND phase = 'done'`, d.Submission, d.fence)
	})
}

// Decide accepts a submission that waits for a decision, so that it is evaluated, or
// ends it as failed with a reason for its owner. Of several decisions the first counts.
//
// Errors: [ErrNotFound]; [*Refusal] with Finished for one that does not wait.
func (s *Store) Decide(ctx context.Context, id int64, accept bool, why string) error {
	return s.change(ctx, fmt.Sprintf("deciding about submission %d", id), func(t *tx) {
		t.lockOwner(id)
		now := s.now()
		decided := int64(0)
		if accept {
			decided = t.exec(`UPDATE own.planned_run SET state = $2, changed_at = $3 WHERE submission_id = $1 AND state = 'held'`, id, StatePlanned, now)
		} else {
			decided = t.exec(`UPDATE own.planned_run SET state = 'finished', outcome = 'failed', result_outcome = $2, fence = fence + 1, changed_at = $3 WHERE submission_id = $1 AND state = 'held'`,
				id, schema.OutcomeRejected, now)
		}
		if decided == 0 {
			t.refuse(Finished, "submission %d does not wait for a decision", id)
			return
		}
		t.exec(`UPDATE own.hook SET phase = 'accepted', tries = 0, error = '', fence = fence + 1, free_at = $2, changed_at = $2 WHERE submission_id = $1`, id, t.clock())
		if accept {
			t.tell(Signal{Kind: SignalPlanned}, submissionSignal(id))
			return
		}
		why := "rejected by the organizers: " + cmp.Or(text.Line(why, maxError), "no reason given")
		t.exec(`UPDATE lb.submission_job_status SET error = $2 WHERE submission_id = $1`, id, text.Line(why, maxError))
		t.judge(id)
		t.finish(id)
	})
}

// A HookWait is a submission that waits for a decision, or whose result the hook has
// not taken.
type HookWait struct {
	Submission int64
	Board      string
	Done       bool      // it has finished
	Held       bool      // the hook has answered that it or an admin decides later
	Since      time.Time // of its phase
	Tries      int
	Error      string // of the last try; "" for none
}

// HookWaits lists submissions that wait for a decision, and then those whose result the
// hook refused at least once; each the oldest first.
func (s *Store) HookWaits(ctx context.Context) (list []HookWait, err error) {
	err = s.read(ctx, "looking for what waits for the hook", func(t *tx) {
		var w HookWait
		t.each(dest{&w.Submission, &w.Board, &w.Done, &w.Held, &w.Since, &w.Tries, &w.Error}, func() { list = append(list, w) },
			`SELECT s.id, l.name, coalesce(s.done, false), h.phase = 'held', h.changed_at, h.tries, h.error FROM own.hook h JOIN lb.submission s ON s.id = h.submission_id JOIN lb.leaderboard l ON l.id = s.leaderboard_id
			WHERE h.phase IN ('waiting', 'held') AND NOT coalesce(s.done, false) OR h.phase = 'done' AND h.error <> '' ORDER BY 3, h.changed_at, s.id`)
	})
	return list, err
}
