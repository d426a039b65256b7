package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	t.each(to{&p.board, &p.gpu, &p.user}, func() { found[p] = true }, `SELECT leaderboard_id, gpu, user_id FROM own.verdict WHERE ranks AND submission_id = $1`, submission)
	return found
}

// insertVerdicts writes many rows in one statement each 500.
func (t *tx) insertVerdicts(list []judged) {
	var values []string
	var args []any
	flush := func() {
		if len(values) == 0 {
			return
		}
		t.exec(`INSERT INTO own.verdict (submission_id, gpu, leaderboard_id, user_id, ranks, reason, score, low, high) VALUES `+strings.Join(values, ", "), args...)
		values, args = values[:0], args[:0]
	}
	for _, j := range list {
		for _, v := range j.verdicts {
			n := len(args)
			values = append(values, fmt.Sprintf("($%d, $%d, $%d, $%d, $%d, $%d, $%d, $%d, $%d)", n+1, n+2, n+3, n+4, n+5, n+6, n+7, n+8, n+9))
			args = append(args, j.id, v.GPU, j.board, j.user, v.Ranks, v.Reason, v.Score, v.Low, v.High)
			if len(values) == 500 {
				flush()
			}
		}
	}
	flush()
}

// standings makes each place what its user's best verdict says. Of equal scores
// the older submission counts. What is kept of the boards' rankings elsewhere is
// old from then on.
func (t *tx) standings(affected map[place]bool) {
	for p := range affected {
		t.exec(`DELETE FROM own.standing WHERE leaderboard_id = $1 AND gpu = $2 AND user_id = $3`, p.board, p.gpu, p.user)
		t.exec(`INSERT INTO own.standing (leaderboard_id, gpu, user_id, submission_id, score, low, high)
			SELECT leaderboard_id, gpu, user_id, submission_id, score, low, high FROM own.verdict
			WHERE ranks AND leaderboard_id = $1 AND gpu = $2 AND user_id = $3 ORDER BY score, submission_id LIMIT 1`, p.board, p.gpu, p.user)
	}
	boards := map[int64]bool{}
	for p := range affected {
		boards[p.board] = true
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
	t.each(to{&signal.ID}, func() { signals = append(signals, signal) }, `SELECT l.name FROM lb.leaderboard l WHERE `+which, args...)
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
	var last int64
	t.get(to{&last}, `SELECT coalesce(max(id), 0) FROM lb.submission`)
	for first := int64(1); first <= last && t.err == nil; first += batch {
		do(t.facts(first, first+batch-1))
	}
}
