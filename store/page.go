package store

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/store/ranking"
)

// Page returns the board's ranking on a GPU type from offset on, at most limit
// entries, and how many there are in all. limit 0 is all of them.
//
// Errors: [ErrNotFound] for a board that does not exist.
func (s *Store) Page(ctx context.Context, board, gpu string, limit, offset int) (entries []ranking.Entry, total int, err error) {
	if limit < 0 || offset < 0 {
		return nil, 0, NewRefusal(Invalid, "page: got limit %d and offset %d, want 0 or more", limit, offset)
	}
	all, err := latest(ctx, s, &s.rankings, board, gpu, (*tx).ranking)
	if err != nil {
		return nil, 0, wrap("reading a board", err)
	}
	total = len(all)
	entries = all[min(offset, total):]
	if limit > 0 && len(entries) > limit {
		entries = entries[:limit]
	}
	return slices.Clone(entries), total, nil
}

// latest returns a list that is made of a ranking, from the cache if its version is
// current.
func latest[T any](ctx context.Context, s *Store, cached *versioned[T], board, gpu string, read func(*tx, boardGPU) []T) ([]T, error) {
	now := &tx{Store: s, ctx: ctx, on: s.db.Read}
	id, version := now.version(board)
	if now.err != nil {
		return nil, now.err
	}
	target := boardGPU{id, gpu}
	return cached.get(target, version, func() (list []T, seen int64, err error) {
		err = s.snapshot(ctx, "from its rows", func(t *tx) {
			_, seen = t.version(board)
			list = read(t, target)
		})
		return list, seen, err
	})
}

// version rises with each change of what is shown of a board's ranking.
func (t *tx) version(board string) (id, version int64) {
	t.get(dest{&id, &version}, `SELECT l.id, coalesce(b.version, 0) FROM lb.leaderboard l LEFT JOIN own.board b ON b.leaderboard_id = l.id WHERE l.name = $1`, board)
	return id, version
}

// ranking is all of a board's on a GPU type.
func (t *tx) ranking(target boardGPU) (entries []ranking.Entry) {
	// Not joined: of many submissions, PostgreSQL would read all of them to do so.
	var e ranking.Entry
	t.each(dest{&e.SubmissionID, &e.UserID, &e.Score, &e.Low, &e.High, &e.FileName, &e.Time, &e.User}, func() { entries = append(entries, e) },
		`SELECT t.submission_id, t.user_id, t.score, t.low, t.high, (SELECT s.file_name FROM lb.submission s WHERE s.id = t.submission_id), (SELECT s.submission_time FROM lb.submission s WHERE s.id = t.submission_id),
			coalesce(u.user_name, '')
		FROM own.standing t JOIN lb.user_info u ON u.id = t.user_id
		WHERE t.leaderboard_id = $1 AND t.gpu = $2 ORDER BY t.score, t.submission_id`, target.board, target.gpu)
	ranking.Number(entries, t.settings(target.board).Ties)
	return entries
}

// A Step is one improvement of a best score.
type Step struct {
	Time         time.Time // of the submission
	Score        float64   // seconds
	UserID, User string
	SubmissionID int64
}

// History returns how the best score of a board on a GPU type came down, the oldest
// step first; with a user, how that user's own did. What does not rank (any more) is
// no part of it.
//
// Errors: [ErrNotFound] for a board that does not exist.
func (s *Store) History(ctx context.Context, board, gpu, userID string) (steps []Step, err error) {
	if userID == "" {
		steps, err = latest(ctx, s, &s.histories, board, gpu, func(t *tx, target boardGPU) []Step { return t.steps(target, "") })
		return slices.Clone(steps), wrap("reading the history of a board", err)
	}
	err = s.snapshot(ctx, "reading a user's history", func(t *tx) {
		id, _ := t.version(board)
		steps = t.steps(boardGPU{id, gpu}, userID)
	})
	return steps, err
}

func (t *tx) steps(target boardGPU, userID string) (steps []Step) {
	who, args := "", []any{target.board, target.gpu}
	if userID != "" {
		who, args = " AND v.user_id = $3", append(args, userID)
	}
	var step Step
	t.each(dest{&step.Time, &step.Score, &step.UserID, &step.User, &step.SubmissionID}, func() { steps = append(steps, step) }, `SELECT b.submission_time, b.score, b.user_id, coalesce(u.user_name, ''), b.submission_id FROM (
			SELECT s.submission_time, v.score, v.user_id, v.submission_id,
				min(v.score) OVER (ORDER BY s.submission_time, s.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS best
			FROM own.verdict v JOIN lb.submission s ON s.id = v.submission_id WHERE v.ranks AND v.leaderboard_id = $1 AND v.gpu = $2`+who+`) b
		JOIN lb.user_info u ON u.id = b.user_id WHERE b.best IS NULL OR b.score < b.best ORDER BY b.submission_time, b.submission_id`, args...)
	return steps
}

// Count returns how many users rank on a board's GPU type.
//
// Errors: [ErrNotFound] for a board that does not exist.
func (s *Store) Count(ctx context.Context, board, gpu string) (count int, err error) {
	err = s.read(ctx, "counting who ranks", func(t *tx) {
		t.get(dest{&count}, `SELECT (SELECT count(*) FROM own.standing t WHERE t.leaderboard_id = l.id AND t.gpu = $2) FROM lb.leaderboard l WHERE l.name = $1`, board, gpu)
	})
	return count, err
}

// versioned caches lists that are made of a board's ranking on a GPU type.
//
// One rule says when a list is out of date: when the version of its board
// (own.board.version) is higher than the list's. The version is read for each use,
// so that it does not matter which instance makes a change. Whatever changes a
// value that a cached list shows must call [tx.moved] in the same transaction:
//
//   - a decision that ranks, and with it a standing: tx.judge, Store.Rebuild
//   - a user's name: tx.upsertUser
//   - the policy of a board: tx.saveSettings
//
// The file name and the time of a submission never change. A new field of
// [ranking.Entry] or [Step] needs a new line here if any of these does not cover
// it, such as a number of tries, which rises without a standing that moves.
// TestStandingsFollowTheRuns compares cached lists with the rows after each change.
type versioned[T any] struct {
	mu    sync.Mutex
	lists map[boardGPU]*versionedList[T]
}

// A boardGPU is one ranking.
type boardGPU struct {
	board int64
	gpu   string
}

type versionedList[T any] struct {
	mu      sync.Mutex // held while the list is made
	version int64
	list    []T
}

// maxVersioned is how many lists are cached; no competition has more.
const maxVersioned = 512

// get returns the list of a ranking, from the cache if that has the version. Otherwise
// make makes it and returns the version that it saw. Callers must not change the list.
func (c *versioned[T]) get(target boardGPU, version int64, make func() ([]T, int64, error)) ([]T, error) {
	cached := c.at(target)
	cached.mu.Lock()
	defer cached.mu.Unlock()
	if cached.list != nil && cached.version >= version {
		return cached.list, nil
	}
	list, seen, err := make()
	if err != nil || len(list) == 0 { // an empty one is made quickly, and of names that somebody invents there are many
		c.drop(target)
		return nil, err
	}
	cached.list, cached.version = list, seen
	return list, nil
}

func (c *versioned[T]) at(k boardGPU) *versionedList[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists == nil || len(c.lists) > maxVersioned {
		c.lists = map[boardGPU]*versionedList[T]{}
	}
	if c.lists[k] == nil {
		c.lists[k] = &versionedList[T]{}
	}
	return c.lists[k]
}

func (c *versioned[T]) drop(k boardGPU) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lists, k)
}
