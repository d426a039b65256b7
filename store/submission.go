package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// A Polled submission is what its owner may see of it, but for the scores of
// secret runs, which are for whoever decides about them.
type Polled struct {
	Listed
	BoardID int64
	Code    string
	Runs    []PolledRun
	Open    []PlannedRun // what has not finished; without lease
}

// A Job is how far a submission is.
type Job struct {
	Status    string    `json:"status"` // "" when there is none
	Error     string    `json:"error"`
	Heartbeat time.Time `json:"-"`
}

// A PolledRun is one row of runs. Its JSON is what kbserve prints.
type PolledRun struct {
	Runner      string          `json:"gpu_type"`
	Mode        string          `json:"mode"`
	Secret      bool            `json:"secret"`
	Passed      bool            `json:"passed"`
	Score       *float64        `json:"score"` // seconds
	Start       time.Time       `json:"start_time"`
	End         time.Time       `json:"end_time"`
	Compilation json.RawMessage `json:"-"` // these four are nil in a secret run
	Meta        json.RawMessage `json:"-"`
	Result      json.RawMessage `json:"-"`
	System      json.RawMessage `json:"-"`
}

// Poll reads one submission.
//
// Errors: [ErrNotFound].
func (s *Store) Poll(ctx context.Context, id int64) (p *Polled, err error) {
	err = s.snapshot(ctx, fmt.Sprintf("reading submission %d", id), func(t *tx) { p = t.poll(id) })
	return p, err
}

func (t *tx) poll(id int64) *Polled {
	p := &Polled{}
	var code []byte
	t.get(append(p.Listed.columns(), &p.BoardID, &code), `SELECT `+listedColumns+`, l.id, c.code FROM lb.submission s JOIN lb.code_files c ON c.id = s.code_id`+listedFrom+`WHERE s.id = $1`, id)
	p.Code = string(code)
	t.pollRuns(p)
	p.Verdicts = t.verdicts(id)
	t.outcomes([]*Listed{&p.Listed})
	p.Open = t.plannedRuns(`WHERE p.submission_id = $1 AND p.state <> 'finished' ORDER BY p.priority, p.created_at, p.run_id`, p.ID)
	return p
}

func (t *tx) pollRuns(p *Polled) {
	var r PolledRun
	t.each(dest{&r.Start, &r.End, &r.Mode, &r.Secret, &r.Runner, &r.Score, &r.Passed, (*[]byte)(&r.Compilation), (*[]byte)(&r.Meta), (*[]byte)(&r.Result), (*[]byte)(&r.System)}, func() {
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

// UnmarkHacked undoes [Store.MarkHacked]: the submission counts as its runs say.
//
// Errors: [ErrNotFound]; [*Refusal] with Invalid for one that is not marked.
func (s *Store) UnmarkHacked(ctx context.Context, id int64) error {
	return s.change(ctx, fmt.Sprintf("taking the mark from submission %d", id), func(t *tx) {
		t.lockOwner(id)
		var hacked, cancelled bool
		t.get(dest{&hacked, &cancelled}, `SELECT coalesce(s.status, '') = 'hacked' OR coalesce(j.status, '') = 'hacked', EXISTS (SELECT 1 FROM own.planned_run p WHERE p.submission_id = s.id AND p.outcome = 'failed')
			FROM lb.submission s LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id WHERE s.id = $1`, id)
		if !hacked {
			t.refuse(Invalid, "submission %d is not marked as hacked", id)
		}
		var why *string
		if cancelled {
			words := "its evaluation was cancelled when it was marked as hacked"
			why = &words
		}
		t.exec(`UPDATE lb.submission SET status = 'active' WHERE id = $1`, id)
		t.exec(`UPDATE lb.submission_job_status SET status = $2, error = $3 WHERE submission_id = $1`, id, StatusRunning, why)
		t.judge(id)
		t.finish(id)
		t.tell(Signal{Kind: SignalBoard, ID: t.boardOf(id)})
	})
}

// boardOf is the name of a submission's board.
func (t *tx) boardOf(submission int64) string {
	return value[string](t, `SELECT l.name FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id WHERE s.id = $1`, submission)
}

// CancelSubmission ends what of a submission has not finished: its status is
// failed, for the reason why. What it has results of stays. It returns the runs
// that may have builds, for whoever cancels those.
//
// Errors: [ErrNotFound]; [*Refusal] with Finished when nothing was open.
func (s *Store) CancelSubmission(ctx context.Context, id int64, why string) (builds []PlannedRun, err error) {
	err = s.change(ctx, fmt.Sprintf("cancelling submission %d", id), func(t *tx) {
		t.lockOwner(id)
		open := t.plannedRuns(`WHERE p.submission_id = $1 AND p.state <> 'finished'`, id)
		if len(open) == 0 {
			t.refuse(Finished, "submission %d has finished", id)
		}
		builds = slices.DeleteFunc(open, func(p PlannedRun) bool { return p.State == StatePlanned || p.State == StateHeld })
		now := s.now()
		t.exec(`UPDATE lb.submission_job_status SET error = coalesce(error, $2) WHERE submission_id = $1
			AND EXISTS (SELECT 1 FROM own.planned_run WHERE submission_id = $1 AND state <> 'finished' AND again = '')`, id, text.Line(why, maxError))
		// The fence makes whoever works on them stop.
		t.exec(`UPDATE own.planned_run SET state = 'finished', outcome = 'failed', result_outcome = 'canceled', fence = fence + 1, changed_at = $2 WHERE submission_id = $1 AND state <> 'finished'`, id, now)
		t.judge(id)
		t.finish(id)
	})
	return builds, err
}

// maxListed is how many submissions one [Query] returns at most, and listed how
// many when it does not say.
const (
	maxListed = 1000
	listed    = 50
)

// A Query says which submissions to list. Empty fields are any.
type Query struct {
	UserID, Board, GPU string
	Status             string // of the job

	Before        int64 // only ids below it, for paging; 0: all
	Offset, Limit int   // Limit 0 is 50; 1000 at most
}

// A Listed submission is one line of a list. Its JSON is what kbserve prints.
type Listed struct {
	ID       int64     `json:"id"`
	Board    string    `json:"board"`
	FileName string    `json:"file_name"`
	GPU      string    `json:"gpu_type"` // "" when Kernelbot accepted it, and Mode, too
	Mode     string    `json:"mode"`
	UserID   string    `json:"user_id"`
	User     string    `json:"user_name"`
	Time     time.Time `json:"submission_time"`
	Done     bool      `json:"done"`
	Hacked   bool      `json:"hacked"`
	Job
	Outcome  *Outcome           `json:"outcome"`  // nil until it has finished, and if it is not known
	Runs     []ListedRun        `json:"-"`        // public runs that passed
	Verdicts []ranking.Decision `json:"verdicts"` // of a ranked submission, by GPU type
}

// listedColumns are read into [Listed.columns]; listedFrom joins what they need to a
// submission, s.
const (
	listedColumns = `s.id, l.name, s.file_name, coalesce(a.gpu, ''), coalesce(a.mode, ''), s.user_id, coalesce(u.user_name, ''), s.submission_time, coalesce(s.done, false),
		s.status = 'hacked' OR coalesce(j.status, '') = 'hacked', coalesce(j.status, ''), coalesce(j.error, ''), j.last_heartbeat`
	listedFrom = ` JOIN lb.leaderboard l ON l.id = s.leaderboard_id JOIN lb.user_info u ON u.id = s.user_id
		LEFT JOIN own.accepted a ON a.submission_id = s.id LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id `
)

func (l *Listed) columns() dest {
	return dest{&l.ID, &l.Board, &l.FileName, &l.GPU, &l.Mode, &l.UserID, &l.User, &l.Time, &l.Done, &l.Hacked, &l.Job.Status, &l.Job.Error, &l.Job.Heartbeat}
}

// A ListedRun is one public run that passed.
type ListedRun struct {
	GPU   string
	Score *float64 // seconds; nil but for a leaderboard run
	Ranks bool     // the submission ranks with it
}

// Submissions lists submissions, the newest first.
func (s *Store) Submissions(ctx context.Context, q Query) (list []Listed, err error) {
	if q.Limit < 0 || q.Offset < 0 || q.Before < 0 {
		return nil, NewRefusal(Invalid, "list: got limit %d, offset %d and before %d, want 0 or more", q.Limit, q.Offset, q.Before)
	}
	q.Limit = cmp.Or(q.Limit, listed)
	q.Limit = min(q.Limit, maxListed)
	err = s.snapshot(ctx, "listing submissions", func(t *tx) {
		list = nil
		where, args := q.where()
		n := len(args)
		var l Listed
		t.each(l.columns(), func() { list = append(list, l) }, `SELECT `+listedColumns+` FROM (SELECT s.id FROM lb.submission s`+where+fmt.Sprintf(` ORDER BY s.id DESC LIMIT $%d OFFSET $%d) f`, n+1, n+2)+`
			JOIN lb.submission s ON s.id = f.id`+listedFrom+`ORDER BY s.id DESC`, append(args, q.Limit, q.Offset)...)
		if len(list) > 0 {
			t.listRuns(list)
		}
	})
	return list, err
}

// where is what stands behind the table of submissions, s, to find those asked for.
func (q Query) where() (clause string, args []any) {
	var parts []string
	add := func(part string, value any) {
		args = append(args, value)
		parts = append(parts, strings.ReplaceAll(part, "$", "$"+strconv.Itoa(len(args))))
	}
	if q.UserID != "" {
		add(`s.user_id = $`, q.UserID)
	}
	if q.Board != "" {
		add(`s.leaderboard_id = (SELECT id FROM lb.leaderboard WHERE name = $)`, q.Board)
	}
	if q.GPU != "" {
		clause += " LEFT JOIN own.accepted a ON a.submission_id = s.id"
		add(`(a.gpu = $ OR EXISTS (SELECT 1 FROM lb.runs r WHERE r.submission_id = s.id AND r.runner = $))`, q.GPU)
	}
	if q.Status != "" {
		clause += " LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id"
		add(`coalesce(j.status, '') = $`, q.Status)
	}
	if q.Before > 0 {
		add(`s.id < $`, q.Before)
	}
	if len(parts) > 0 {
		clause += " WHERE " + strings.Join(parts, " AND ")
	}
	return clause, args
}

// listRuns adds runs, verdicts and outcomes to a list, with a few statements for all of it.
func (t *tx) listRuns(list []Listed) {
	byID := make(map[int64]*Listed, len(list))
	args := make([]any, len(list))
	all := make([]*Listed, len(list))
	for i := range list {
		byID[list[i].ID], all[i] = &list[i], &list[i]
		args[i] = list[i].ID
	}
	t.outcomes(all)
	these := "(" + placeholders(0, len(args)) + ")"
	var id int64
	var v ranking.Decision
	t.each(dest{&id, &v.GPU, &v.Ranks, &v.Reason, &v.Score, &v.Low, &v.High}, func() { byID[id].Verdicts = append(byID[id].Verdicts, v) }, `SELECT submission_id, gpu, ranks, reason, score, low, high FROM own.verdict WHERE submission_id IN `+these+` ORDER BY submission_id, gpu`, args...)
	var r ListedRun
	t.each(dest{&id, &r.GPU, &r.Score}, func() {
		l := byID[id]
		r.Ranks = false
		for _, v := range l.Verdicts {
			r.Ranks = r.Ranks || v.Ranks && v.GPU == r.GPU && r.Score != nil && v.Score != nil && *v.Score == *r.Score
		}
		l.Runs = append(l.Runs, r)
	}, `SELECT submission_id, runner, CAST(score AS double precision) FROM lb.runs WHERE NOT secret AND passed AND submission_id IN `+these+` ORDER BY submission_id, id`, args...)
}
