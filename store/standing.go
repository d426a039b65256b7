package store

import (
	"context"
	"database/sql"
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
func (s *Store) judge(ctx context.Context, tx *sql.Tx, submission int64) error {
	old, err := s.stored(ctx, tx, submission, submission)
	if err != nil {
		return err
	}
	list, err := s.facts(ctx, tx, submission, submission)
	if err != nil || len(list) == 0 {
		return err
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
		return nil
	}
	if _, err := s.db.Exec(ctx, tx, `DELETE FROM own.verdict WHERE submission_id = $1`, submission); err != nil {
		return err
	}
	if err := s.insertVerdicts(ctx, tx, list); err != nil {
		return err
	}
	return s.standings(ctx, tx, affected)
}

// places are those that the submission ranks in.
func (s *Store) places(ctx context.Context, tx *sql.Tx, submission int64) (map[place]bool, error) {
	found := map[place]bool{}
	return found, s.db.Each(ctx, tx, func(rows *sql.Rows) error {
		var p place
		err := rows.Scan(&p.board, &p.gpu, &p.user)
		found[p] = true
		return err
	}, `SELECT leaderboard_id, gpu, user_id FROM own.verdict WHERE ranks AND submission_id = $1`, submission)
}

// insertVerdicts writes many rows in one statement each 500.
func (s *Store) insertVerdicts(ctx context.Context, tx *sql.Tx, list []judged) error {
	var values []string
	var args []any
	flush := func() error {
		if len(values) == 0 {
			return nil
		}
		_, err := s.db.Exec(ctx, tx, `INSERT INTO own.verdict (submission_id, gpu, leaderboard_id, user_id, ranks, reason, score, low, high) VALUES `+strings.Join(values, ", "), args...)
		values, args = values[:0], args[:0]
		return err
	}
	for _, j := range list {
		for _, v := range j.verdicts {
			n := len(args)
			values = append(values, fmt.Sprintf("($%d, $%d, $%d, $%d, $%d, $%d, $%d, $%d, $%d)", n+1, n+2, n+3, n+4, n+5, n+6, n+7, n+8, n+9))
			args = append(args, j.id, v.GPU, j.board, j.user, v.Ranks, v.Reason, v.Score, v.Low, v.High)
			if len(values) == 500 {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// standings makes each place what its user's best verdict says. Of equal scores
// the older submission counts. What is kept of the boards' rankings elsewhere is
// old from then on.
func (s *Store) standings(ctx context.Context, tx *sql.Tx, affected map[place]bool) error {
	for p := range affected {
		if _, err := s.db.Exec(ctx, tx, `DELETE FROM own.standing WHERE leaderboard_id = $1 AND gpu = $2 AND user_id = $3`, p.board, p.gpu, p.user); err != nil {
			return err
		}
		if _, err := s.db.Exec(ctx, tx, `INSERT INTO own.standing (leaderboard_id, gpu, user_id, submission_id, score, low, high)
			SELECT leaderboard_id, gpu, user_id, submission_id, score, low, high FROM own.verdict
			WHERE ranks AND leaderboard_id = $1 AND gpu = $2 AND user_id = $3 ORDER BY score, submission_id LIMIT 1`, p.board, p.gpu, p.user); err != nil {
			return err
		}
	}
	boards := map[int64]bool{}
	for p := range affected {
		boards[p.board] = true
	}
	for _, board := range slices.Sorted(maps.Keys(boards)) {
		if err := s.moved(ctx, tx, `l.id = $1`, board); err != nil {
			return err
		}
	}
	return nil
}

// moved says that the ranking of boards has changed, or what is shown of it: their
// version rises, and whoever watches them is told. The rows that it locks are the
// last that a transaction locks, so that two of them do not wait for each other.
func (s *Store) moved(ctx context.Context, tx *sql.Tx, which string, args ...any) error {
	var signals []Signal
	err := s.db.Each(ctx, tx, func(rows *sql.Rows) error {
		signal := Signal{Kind: SignalBoard}
		err := rows.Scan(&signal.ID)
		signals = append(signals, signal)
		return err
	}, `SELECT l.name FROM lb.leaderboard l WHERE `+which, args...)
	if err != nil || len(signals) == 0 {
		return err
	}
	_, err = s.db.Exec(ctx, tx, `INSERT INTO own.board (leaderboard_id, version) SELECT l.id, 1 FROM lb.leaderboard l WHERE `+which+` ORDER BY l.id
		ON CONFLICT (leaderboard_id) DO UPDATE SET version = own.board.version + 1`, args...)
	if err != nil {
		return err
	}
	return s.tell(ctx, tx, signals...)
}

// batch is how many submissions are judged at a time where all of them are.
const batch = 1000

// Rebuild makes all verdicts and standings anew, from the runs alone. It returns
// how many standings there are. Others wait with their changes until it is done.
func (s *Store) Rebuild(ctx context.Context) (count int64, err error) {
	err = s.change(ctx, "rebuilding the standings", func(tx *sql.Tx) error {
		if s.db.Kind == database.Postgres {
			if _, err := s.db.Exec(ctx, tx, `LOCK TABLE own.verdict, own.standing IN EXCLUSIVE MODE`); err != nil {
				return err
			}
		}
		for _, statement := range []string{`DELETE FROM own.standing`, `DELETE FROM own.verdict`} {
			if _, err := s.db.Exec(ctx, tx, statement); err != nil {
				return err
			}
		}
		err := s.all(ctx, tx, func(list []judged) error { return s.insertVerdicts(ctx, tx, list) })
		if err != nil {
			return err
		}
		count, err = s.db.Exec(ctx, tx, `INSERT INTO own.standing (leaderboard_id, gpu, user_id, submission_id, score, low, high) `+bestVerdicts)
		if err != nil {
			return err
		}
		return s.moved(ctx, tx, `true`)
	})
	return count, err
}

const bestVerdicts = `SELECT leaderboard_id, gpu, user_id, submission_id, score, low, high FROM (
	SELECT v.*, row_number() OVER (PARTITION BY leaderboard_id, gpu, user_id ORDER BY score, submission_id) AS place FROM own.verdict v WHERE ranks) best WHERE place = 1`

// all judges every submission, a batch at a time.
func (s *Store) all(ctx context.Context, on database.Querier, do func([]judged) error) error {
	var last int64
	if err := s.db.Row(ctx, on, `SELECT coalesce(max(id), 0) FROM lb.submission`).Scan(&last); err != nil {
		return err
	}
	for first := int64(1); first <= last; first += batch {
		list, err := s.facts(ctx, on, first, first+batch-1)
		if err != nil {
			return err
		}
		if err := do(list); err != nil {
			return err
		}
	}
	return nil
}
