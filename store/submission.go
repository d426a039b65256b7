package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// A Polled submission is what its owner may see of it, but for the scores of
// secret runs, which are for whoever decides about them.
type Polled struct {
	ID       int64
	BoardID  int64
	Board    string
	FileName string
	UserID   string
	Mode     string // "" when Kernelbot accepted it
	Time     time.Time
	Done     bool
	Hacked   bool
	Code     string
	Job      Job
	Runs     []PolledRun
	Open     []PlannedRun       // what has not finished; without lease
	Verdicts []ranking.Decision // of a ranked submission, by GPU type
}

// A Job is how far a submission is.
type Job struct {
	Status    string // "" when there is none
	Error     string
	Heartbeat time.Time
}

// A PolledRun is one row of runs.
type PolledRun struct {
	Start, End  time.Time
	Mode        string
	Secret      bool
	Runner      string
	Score       *float64
	Passed      bool
	Compilation json.RawMessage // these four are nil in a secret run
	Meta        json.RawMessage
	Result      json.RawMessage
	System      json.RawMessage
}

// Poll reads one submission.
//
// Errors: [ErrNotFound].
func (s *Store) Poll(ctx context.Context, id int64) (p *Polled, err error) {
	err = s.snapshot(ctx, fmt.Sprintf("reading submission %d", id), func(t *tx) {
		p = t.poll(id)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (t *tx) poll(id int64) *Polled {
	p := &Polled{ID: id}
	var code []byte
	t.get(to{&p.BoardID, &p.Board, &p.FileName, &p.UserID, &p.Mode, &p.Time, &p.Done, &p.Hacked, &code, &p.Job.Status, &p.Job.Error, &p.Job.Heartbeat}, `SELECT l.id, l.name, s.file_name, s.user_id, coalesce(a.mode, ''), s.submission_time, coalesce(s.done, false), s.status = 'hacked' OR coalesce(j.status, '') = 'hacked', c.code, coalesce(j.status, ''), coalesce(j.error, ''), j.last_heartbeat
		FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id JOIN lb.code_files c ON c.id = s.code_id
		LEFT JOIN own.accepted a ON a.submission_id = s.id LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id WHERE s.id = $1`, id)
	p.Code = string(code)
	t.pollRuns(p)
	p.Verdicts = t.verdicts(id)
	var o PlannedRun
	t.each(o.columns(), func() { p.Open = append(p.Open, o) }, `SELECT `+plannedColumns+plannedFrom+`WHERE p.submission_id = $1 AND p.state <> 'finished' ORDER BY p.priority, p.created_at, p.run_id`, p.ID)
	return p
}

func (t *tx) pollRuns(p *Polled) {
	var r PolledRun
	t.each(to{&r.Start, &r.End, &r.Mode, &r.Secret, &r.Runner, &r.Score, &r.Passed, (*[]byte)(&r.Compilation), (*[]byte)(&r.Meta), (*[]byte)(&r.Result), (*[]byte)(&r.System)}, func() {
		if r.Secret {
			r.Compilation, r.Meta, r.Result, r.System = nil, nil, nil, nil
		}
		p.Runs = append(p.Runs, r)
	}, `SELECT start_time, end_time, mode, secret, runner, CAST(score AS double precision), passed, CAST(compilation AS text), CAST(meta AS text), CAST(result AS text), CAST(system_info AS text)
		FROM lb.runs WHERE submission_id = $1 ORDER BY secret, id`, p.ID)
}

// Delete removes a submission with its runs; its code stays, as others may have
// handed in the same. What its user ranks with is then the next best.
//
// Errors: [ErrNotFound].
func (s *Store) Delete(ctx context.Context, id int64) error {
	defer s.counts.forget()
	return s.change(ctx, fmt.Sprintf("deleting submission %d", id), func(t *tx) {
		t.lockOwner(id)
		affected := t.places(id)
		board := t.boardOf(id)
		t.exec(`DELETE FROM lb.runs WHERE submission_id = $1`, id)
		t.exec(`DELETE FROM lb.submission WHERE id = $1`, id)
		t.standings(affected)
		t.tell(submissionSignal(id), Signal{Kind: SignalPlanned}, Signal{Kind: SignalBoard, ID: board})
	})
}

// MarkHacked takes a submission out of the ranking and keeps it, with the reason.
// Its planned runs are not evaluated any more.
//
// Errors: [ErrNotFound].
func (s *Store) MarkHacked(ctx context.Context, id int64, why string) error {
	return s.change(ctx, fmt.Sprintf("marking submission %d as hacked", id), func(t *tx) {
		t.lockOwner(id)
		now := s.now()
		t.exec(`UPDATE own.planned_run SET state = 'finished', changed_at = $2 WHERE submission_id = $1 AND state <> 'finished'`, id, now)
		t.exec(`UPDATE lb.submission SET done = true, status = 'hacked' WHERE id = $1`, id)
		t.exec(`INSERT INTO lb.submission_job_status (submission_id, status, error, created_at) VALUES ($1, 'hacked', $2, $3)
			ON CONFLICT (submission_id) DO UPDATE SET status = 'hacked', error = excluded.error`, id, text.Line(why, maxError), now)
		t.judge(id)
		t.tell(submissionSignal(id), Signal{Kind: SignalPlanned}, Signal{Kind: SignalBoard, ID: t.boardOf(id)})
	})
}

// boardOf is the name of a submission's board.
func (t *tx) boardOf(submission int64) (name string) {
	t.get(to{&name}, `SELECT l.name FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id WHERE s.id = $1`, submission)
	return name
}

// CancelSubmission ends what of a submission has not finished: its status is
// failed, for the reason why. What it has results of stays. It returns the runs
// that may have builds, for whoever cancels those.
//
// Errors: [ErrNotFound]; [*Refusal] with Finished when nothing was open.
func (s *Store) CancelSubmission(ctx context.Context, id int64, why string) (builds []PlannedRun, err error) {
	err = s.change(ctx, fmt.Sprintf("cancelling submission %d", id), func(t *tx) {
		t.lockOwner(id)
		builds = nil
		open := 0
		var p PlannedRun
		t.each(p.columns(), func() {
			if p.State != StatePlanned {
				builds = append(builds, p)
			}
			open++
		}, `SELECT `+plannedColumns+plannedFrom+`WHERE p.submission_id = $1 AND p.state <> 'finished'`, id)
		if open == 0 {
			t.refuse(Finished, "submission %d has finished", id)
		}
		now := s.now()
		t.exec(`UPDATE lb.submission_job_status SET error = coalesce(error, $2) WHERE submission_id = $1
			AND EXISTS (SELECT 1 FROM own.planned_run WHERE submission_id = $1 AND state <> 'finished' AND again = '')`, id, text.Line(why, maxError))
		// The fence makes whoever works on them stop.
		t.exec(`UPDATE own.planned_run SET state = 'finished', outcome = 'failed', fence = fence + 1, changed_at = $2 WHERE submission_id = $1 AND state <> 'finished'`, id, now)
		t.judge(id)
		t.finish(id)
	})
	return builds, err
}
