package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// A place is one user's on one GPU type of one board.
type place struct {
	board int64
	gpu   string
	user  string
}

// judge writes what holds for a submission now, and its user's standings. The
// caller has locked the user.
func (t *tx) judge(submission int64) {
	old := t.stored(submission, submission)
	list := t.facts(submission, submission)
	if len(list) == 0 {
		return
	}
	j := list[0]
	affected := map[place]bool{}
	changed := false
	compare := func(gpu string, before, now ranking.Decision) {
		changed = changed || !before.Equal(now)
		if (before.Ranks || now.Ranks) && !before.Equal(now) {
			affected[place{j.board, gpu, j.user}] = true
		}
	}
	for _, v := range j.verdicts {
		compare(v.GPU, old[key{submission, v.GPU}], v)
		delete(old, key{submission, v.GPU})
	}
	for k, v := range old {
		compare(k.gpu, v, ranking.Decision{})
	}
	if !changed {
		return
	}
	t.exec(`DELETE FROM own.verdict WHERE submission_id = $1`, submission)
	t.insertVerdicts(list)
	t.standings(affected)
}

// places are those that the submission ranks in.
func (t *tx) places(submission int64) map[place]bool {
	found := map[place]bool{}
	var p place
	t.each(dest{&p.board, &p.gpu, &p.user}, func() { found[p] = true }, `SELECT leaderboard_id, gpu, user_id FROM own.verdict WHERE ranks AND submission_id = $1`, submission)
	return found
}

func (t *tx) insertVerdicts(list []judged) {
	var rows [][]any
	for _, j := range list {
		for _, v := range j.verdicts {
			rows = append(rows, []any{j.id, v.GPU, j.board, j.user, v.Ranks, v.Reason, v.Score, v.Low, v.High})
		}
	}
	t.insert(`own.verdict (submission_id, gpu, leaderboard_id, user_id, ranks, reason, score, low, high)`, rows)
}

// standings makes each place what its user's best verdict says. Of equal scores
// the older submission counts. What is kept of the boards' rankings elsewhere is
// old from then on.
func (t *tx) standings(affected map[place]bool) {
	boards := map[int64]bool{}
	for p := range affected {
		boards[p.board] = true
		t.exec(`DELETE FROM own.standing WHERE leaderboard_id = $1 AND gpu = $2 AND user_id = $3`, p.board, p.gpu, p.user)
		t.exec(`INSERT INTO own.standing (leaderboard_id, gpu, user_id, submission_id, score, low, high)
			SELECT leaderboard_id, gpu, user_id, submission_id, score, low, high FROM own.verdict
			WHERE ranks AND leaderboard_id = $1 AND gpu = $2 AND user_id = $3 ORDER BY score, submission_id LIMIT 1`, p.board, p.gpu, p.user)
	}
	for _, board := range slices.Sorted(maps.Keys(boards)) {
		t.moved(`l.id = $1`, board)
	}
}

// moved says that the ranking of boards has changed, or what is shown of it: their
// version rises, and whoever watches them is told. The rows that it locks are the
// last that a transaction locks, so that two of them do not wait for each other.
func (t *tx) moved(which string, args ...any) {
	var signals []Signal
	signal := Signal{Kind: SignalBoard}
	t.each(dest{&signal.ID}, func() { signals = append(signals, signal) }, `SELECT l.name FROM lb.leaderboard l WHERE `+which, args...)
	if len(signals) == 0 {
		return
	}
	t.exec(`INSERT INTO own.board (leaderboard_id, version) SELECT l.id, 1 FROM lb.leaderboard l WHERE `+which+` ORDER BY l.id
		ON CONFLICT (leaderboard_id) DO UPDATE SET version = own.board.version + 1`, args...)
	t.tell(signals...)
}

// batch is how many submissions are judged at a time where all of them are.
const batch = 1000

// Rebuild makes all verdicts and standings anew, from the runs alone. It returns
// how many standings there are. Others wait with their changes until it is done.
func (s *Store) Rebuild(ctx context.Context) (count int64, err error) {
	err = s.change(ctx, "rebuilding the standings", func(t *tx) {
		if s.db.Kind == database.Postgres {
			t.exec(`LOCK TABLE own.verdict, own.standing IN EXCLUSIVE MODE`)
		}
		t.exec(`DELETE FROM own.standing`)
		t.exec(`DELETE FROM own.verdict`)
		t.all(t.insertVerdicts)
		count = t.exec(`INSERT INTO own.standing (leaderboard_id, gpu, user_id, submission_id, score, low, high) ` + bestVerdicts)
		t.moved(`true`)
	})
	return count, err
}

const bestVerdicts = `SELECT leaderboard_id, gpu, user_id, submission_id, score, low, high FROM (
	SELECT v.*, row_number() OVER (PARTITION BY leaderboard_id, gpu, user_id ORDER BY score, submission_id) AS place FROM own.verdict v WHERE ranks) best WHERE place = 1`

// all judges every submission, a batch at a time.
func (t *tx) all(do func([]judged)) {
	last := value[int64](t, `SELECT coalesce(max(id), 0) FROM lb.submission`)
	for first := int64(1); first <= last && t.err == nil; first += batch {
		do(t.facts(first, first+batch-1))
	}
}

// A judged submission is everything that [Judge] says of it.
type judged struct {
	id       int64
	board    int64
	user     string
	verdicts []ranking.Decision
}

// found is what is read of one submission before it is judged.
type found struct {
	judged
	policy ranking.Policy
	base   ranking.Facts
	ranked bool
	gpus   map[string]*ranking.Facts
}

func (f *found) on(gpu string) *ranking.Facts {
	if f.gpus[gpu] == nil {
		f.gpus[gpu] = &ranking.Facts{}
	}
	return f.gpus[gpu]
}

// judge makes the verdicts, by GPU type.
func (f *found) judge() judged {
	if f.ranked {
		for _, gpu := range slices.Sorted(maps.Keys(f.gpus)) {
			facts := *f.gpus[gpu]
			facts.Hacked, facts.Late = f.base.Hacked, f.base.Late
			v := ranking.Decide(f.policy, facts)
			v.GPU = gpu
			f.verdicts = append(f.verdicts, v)
		}
	}
	return f.judged
}

// facts reads the submissions from first to last and judges them.
func (t *tx) facts(first, last int64) (out []judged) {
	all := map[int64]*found{}
	var f found
	var gpu string
	t.each(dest{&f.id, &f.board, &f.user, &f.base.Hacked, &f.base.Late, &f.ranked, &gpu, &f.policy.Harness, &f.policy.Sandbox, &f.policy.ClearTiming}, func() {
		one := f
		one.gpus = map[string]*ranking.Facts{}
		if gpu != "" {
			one.on(gpu)
		}
		all[f.id] = &one
	}, `SELECT s.id, s.leaderboard_id, s.user_id, s.status = 'hacked' OR coalesce(j.status, '') = 'hacked', coalesce(a.late, false), coalesce(s.mode_category, '') = 'leaderboard',
			coalesce(a.gpu, ''), coalesce(b.harness, ''), coalesce(b.sandbox, ''), coalesce(b.clear_timing, false)
		FROM lb.submission s LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id LEFT JOIN own.accepted a ON a.submission_id = s.id
		LEFT JOIN own.board b ON b.leaderboard_id = s.leaderboard_id WHERE s.id BETWEEN $1 AND $2`, first, last)
	t.runFacts(all, first, last)
	t.openFacts(all, first, last)
	if t.err != nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[id].judge())
	}
	return out
}

// runFacts adds the rows of runs.
func (t *tx) runFacts(all map[int64]*found, first, last int64) {
	var id int64
	var gpu string
	var r ranking.Run
	var j ranking.Judging
	var harness *string
	t.each(dest{&id, &gpu, &r.Mode, &r.Secret, &r.Passed, &r.Score, &harness, &j.SelfChecked, &j.Proved, &j.Sandbox, &j.Ambiguous, &j.Low, &j.High}, func() {
		f := all[id]
		if f == nil {
			return
		}
		r.Judging = nil
		if harness != nil {
			own := j
			own.Harness = *harness
			r.Judging = &own
		}
		f.on(gpu).Runs = append(f.on(gpu).Runs, r)
		f.ranked = f.ranked || r.Score != nil && !r.Secret
	}, `SELECT r.submission_id, r.runner, r.mode, r.secret, r.passed, CAST(r.score AS double precision), e.harness, coalesce(e.self_checked, false), coalesce(e.proved, false), coalesce(e.sandbox, ''), coalesce(e.ambiguous, false), e.low, e.high
		FROM lb.runs r LEFT JOIN own.run_evidence e ON e.run_id = r.id WHERE r.submission_id BETWEEN $1 AND $2 ORDER BY r.submission_id, r.id`, first, last)
}

// openFacts adds what is planned and has not finished.
func (t *tx) openFacts(all map[int64]*found, first, last int64) {
	var id int64
	var gpu string
	var secret bool
	t.each(dest{&id, &gpu, &secret}, func() {
		f := all[id]
		switch {
		case f == nil:
		case secret:
			f.on(gpu).SecretOpen = true
		default:
			f.on(gpu).PublicOpen = true
		}
	}, `SELECT submission_id, gpu, secret FROM own.planned_run WHERE state <> 'finished' AND submission_id BETWEEN $1 AND $2`, first, last)
}

// maxFaults is how many differences [Store.Check] lists.
const maxFaults = 20

// Check compares verdicts and standings with what the runs say, on one state of
// the database, and returns the differences, one line each, the first of many. A
// server of Kernelbot's that writes to the same tables makes some.
func (s *Store) Check(ctx context.Context) (faults []string, err error) {
	fault := func(format string, args ...any) {
		if len(faults) < maxFaults {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	err = s.snapshot(ctx, "checking the standings", func(t *tx) {
		faults = nil
		t.all(func(list []judged) {
			if len(list) == 0 {
				return
			}
			stored := t.stored(list[0].id, list[len(list)-1].id)
			for _, j := range list {
				for _, v := range j.verdicts {
					got, ok := stored[key{j.id, v.GPU}]
					delete(stored, key{j.id, v.GPU})
					if !ok || !got.Equal(v) {
						fault("submission %d on %s: the kept verdict is %s, want %s", j.id, v.GPU, verdictWords(got, ok), verdictWords(v, true))
					}
				}
			}
			for k := range stored {
				fault("submission %d on %s: a verdict is kept, want none", k.id, k.gpu)
			}
		})
		for _, way := range []struct{ statement, words string }{
			{`SELECT leaderboard_id, gpu, user_id, submission_id FROM (` + bestVerdicts + ` EXCEPT SELECT leaderboard_id, gpu, user_id, submission_id, score, low, high FROM own.standing) d ORDER BY 1, 2, 3`, "missing"},
			{`SELECT leaderboard_id, gpu, user_id, submission_id FROM (SELECT leaderboard_id, gpu, user_id, submission_id, score, low, high FROM own.standing EXCEPT ` + bestVerdicts + `) d ORDER BY 1, 2, 3`, "kept, and should not be"},
		} {
			var p place
			var id int64
			t.each(dest{&p.board, &p.gpu, &p.user, &id}, func() {
				fault("standing of user %s on %s of board %d (submission %d): %s", p.user, p.gpu, p.board, id, way.words)
			}, way.statement)
		}
	})
	return faults, err
}

type key struct {
	id  int64
	gpu string
}

func (t *tx) stored(first, last int64) map[key]ranking.Decision {
	stored := map[key]ranking.Decision{}
	var id int64
	var v ranking.Decision
	t.each(dest{&id, &v.GPU, &v.Ranks, &v.Reason, &v.Score, &v.Low, &v.High}, func() { stored[key{id, v.GPU}] = v }, `SELECT submission_id, gpu, ranks, reason, score, low, high FROM own.verdict WHERE submission_id BETWEEN $1 AND $2`, first, last)
	return stored
}

// verdicts are those of one submission, by GPU type.
func (t *tx) verdicts(submission int64) []ranking.Decision {
	list := slices.Collect(maps.Values(t.stored(submission, submission)))
	slices.SortFunc(list, func(a, b ranking.Decision) int { return strings.Compare(a.GPU, b.GPU) })
	return list
}

func verdictWords(v ranking.Decision, there bool) string {
	switch {
	case !there:
		return "missing"
	case v.Ranks && v.Score != nil:
		return "ranks with " + schema.FloatRepr(*v.Score) + " s"
	case v.Ranks:
		return "ranks"
	}
	return "does not rank: " + v.Reason
}
