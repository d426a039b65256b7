package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/store/ranking"
)

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

// A Listed submission is one line of a list.
type Listed struct {
	ID           int64
	Board        string
	FileName     string
	GPU, Mode    string // "" when Kernelbot accepted it
	UserID, User string
	Time         time.Time
	Done, Hacked bool
	Job          Job
	Runs         []ListedRun        // public runs that passed
	Verdicts     []ranking.Decision // of a ranked submission, by GPU type
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
		return nil, &Refusal{Why: Invalid, Text: fmt.Sprintf("list: got limit %d, offset %d and before %d, want 0 or more", q.Limit, q.Offset, q.Before)}
	}
	if q.Limit == 0 {
		q.Limit = listed
	}
	q.Limit = min(q.Limit, maxListed)
	err = s.snapshot(ctx, "listing submissions", func(t *tx) {
		list = nil
		where, args := q.where()
		n := len(args)
		var l Listed
		t.each(to{&l.ID, &l.Board, &l.FileName, &l.GPU, &l.Mode, &l.UserID, &l.User, &l.Time, &l.Done, &l.Hacked, &l.Job.Status, &l.Job.Error, &l.Job.Heartbeat}, func() { list = append(list, l) }, `SELECT s.id, l.name, s.file_name, coalesce(a.gpu, ''), coalesce(a.mode, ''), s.user_id, coalesce(u.user_name, ''), s.submission_time, coalesce(s.done, false),
				s.status = 'hacked' OR coalesce(j.status, '') = 'hacked', coalesce(j.status, ''), coalesce(j.error, ''), j.last_heartbeat
			FROM (SELECT s.id FROM lb.submission s`+where+fmt.Sprintf(` ORDER BY s.id DESC LIMIT $%d OFFSET $%d) f`, n+1, n+2)+`
			JOIN lb.submission s ON s.id = f.id JOIN lb.leaderboard l ON l.id = s.leaderboard_id JOIN lb.user_info u ON u.id = s.user_id
			LEFT JOIN own.accepted a ON a.submission_id = s.id LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id ORDER BY s.id DESC`, append(args, q.Limit, q.Offset)...)
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

// listRuns adds runs and verdicts to a list, in two statements for all of it.
func (t *tx) listRuns(list []Listed) {
	byID := make(map[int64]*Listed, len(list))
	marks, args := make([]string, len(list)), make([]any, len(list))
	for i := range list {
		byID[list[i].ID] = &list[i]
		marks[i], args[i] = "$"+strconv.Itoa(i+1), list[i].ID
	}
	these := "(" + strings.Join(marks, ", ") + ")"
	var id int64
	var v ranking.Decision
	t.each(to{&id, &v.GPU, &v.Ranks, &v.Reason, &v.Score, &v.Low, &v.High}, func() { byID[id].Verdicts = append(byID[id].Verdicts, v) }, `SELECT submission_id, gpu, ranks, reason, score, low, high FROM own.verdict WHERE submission_id IN `+these+` ORDER BY submission_id, gpu`, args...)
	var r ListedRun
	t.each(to{&id, &r.GPU, &r.Score}, func() {
		l := byID[id]
		r.Ranks = false
		for _, v := range l.Verdicts {
			r.Ranks = r.Ranks || v.Ranks && v.GPU == r.GPU && r.Score != nil && v.Score != nil && *v.Score == *r.Score
		}
		l.Runs = append(l.Runs, r)
	}, `SELECT submission_id, runner, CAST(score AS double precision) FROM lb.runs WHERE NOT secret AND passed AND submission_id IN `+these+` ORDER BY submission_id, id`, args...)
}
