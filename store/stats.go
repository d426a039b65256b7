package store

import (
	"context"
	"database/sql"
	"maps"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/store/database"
)

// Stats are the numbers of all boards.
type Stats struct {
	Users       int // who have submitted
	Submissions int
	Runs        int // planned runs that have not finished
	Hour, Day   int // submissions of the last hour and of the last 24
	Boards      []BoardStats
}

// BoardStats are the numbers of one board.
type BoardStats struct {
	Board       string
	Users       int
	Submissions int
	Statuses    map[string]int // submissions by their job's status; "" for none
	Modes       map[string]int // by mode; of those that Kernelbot accepted, by its category
	Hour, Day   int
	Open        int // planned runs that have not finished
}

// Stats counts, on one state of the database. It reads every submission's row.
func (s *Store) Stats(ctx context.Context) (all Stats, err error) {
	err = s.snapshot(ctx, "counting", func(tx *sql.Tx) error {
		all = Stats{}
		var ids []int64
		places := map[int64]int{}
		err := s.db.Each(ctx, tx, func(rows *sql.Rows) error {
			var id int64
			b := BoardStats{Statuses: map[string]int{}, Modes: map[string]int{}}
			err := rows.Scan(&id, &b.Board, &b.Users)
			places[id] = len(ids)
			ids, all.Boards = append(ids, id), append(all.Boards, b)
			return err
		}, `SELECT l.id, l.name, (SELECT count(DISTINCT s.user_id) FROM lb.submission s WHERE s.leaderboard_id = l.id) FROM lb.leaderboard l ORDER BY l.name`)
		if err != nil {
			return err
		}
		if err := s.db.Row(ctx, tx, `SELECT count(DISTINCT user_id) FROM lb.submission`).Scan(&all.Users); err != nil {
			return err
		}
		now := s.now()
		err = s.db.Each(ctx, tx, func(rows *sql.Rows) error {
			var id int64
			var status, mode string
			var n, hour, day int
			if err := rows.Scan(&id, &status, &mode, &n, &hour, &day); err != nil {
				return err
			}
			b := &all.Boards[places[id]]
			b.Submissions += n
			b.Statuses[status] += n
			b.Modes[mode] += n
			b.Hour += hour
			b.Day += day
			return nil
		}, `SELECT s.leaderboard_id, CASE WHEN s.status = 'hacked' THEN 'hacked' ELSE coalesce(j.status, '') END, coalesce(a.mode, s.mode_category, ''),
				count(*), count(CASE WHEN s.submission_time > $1 THEN 1 END), count(CASE WHEN s.submission_time > $2 THEN 1 END)
			FROM lb.submission s LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id LEFT JOIN own.accepted a ON a.submission_id = s.id GROUP BY 1, 2, 3`,
			database.Stamp{Time: now.Add(-time.Hour)}, database.Stamp{Time: now.Add(-24 * time.Hour)})
		if err != nil {
			return err
		}
		err = s.db.Each(ctx, tx, func(rows *sql.Rows) error {
			var id int64
			var open int
			err := rows.Scan(&id, &open)
			all.Boards[places[id]].Open = open
			return err
		}, `SELECT s.leaderboard_id, count(*) FROM own.planned_run p JOIN lb.submission s ON s.id = p.submission_id WHERE p.state <> 'finished' GROUP BY 1`)
		for _, b := range all.Boards {
			all.Submissions += b.Submissions
			all.Runs += b.Open
			all.Hour += b.Hour
			all.Day += b.Day
		}
		return err
	})
	return all, err
}

// counts are how many submissions and standings each board has. At a million runs
// counting them takes longer than a start page may, so that only what is new is
// counted each time, and the rest by one who asks when it is older than countAge.
type counts struct {
	mu       sync.Mutex
	at       time.Time
	upTo     int64         // the submissions that are counted have ids up to it
	old      map[int64]int // of those, by board; not changed once it is here
	counting bool          // somebody makes a new one of old
	ranks    map[int64]boardCount
}

type boardCount struct {
	version int64
	ranked  int
}

const (
	countAge = time.Minute

	// countMargin is how many of the newest submissions are counted each time: of
	// two that come together, the one with the smaller id may be there later.
	countMargin = 1000
)

// forget makes the next reading count everything: submissions were deleted. What
// another instance deletes is noticed within countAge.
func (c *counts) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.old = nil
}

// submissions returns how many each board has.
func (s *Store) submissions(ctx context.Context, on database.Querier) (map[int64]int, error) {
	old, upTo, err := s.counted(ctx, on)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(old)
	// The plus keeps SQLite from reading all of another index to group by it.
	return all, s.countInto(ctx, on, all, `SELECT +leaderboard_id, count(*) FROM lb.submission WHERE id > $1 GROUP BY 1`, upTo)
}

// counted returns the submissions up to an id, by board. While one makes that anew,
// the others take what is there; where nothing is, they wait.
func (s *Store) counted(ctx context.Context, on database.Querier) (old map[int64]int, upTo int64, err error) {
	c := &s.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := s.now(); c.old != nil && !c.counting && (now.Sub(c.at) > countAge || now.Before(c.at)) {
		c.counting = true
		c.mu.Unlock()
		old, upTo, err = s.count(ctx, on)
		c.mu.Lock()
		c.counting = false
		if err != nil {
			return nil, 0, err
		}
		if c.old != nil { // nothing was deleted meanwhile
			c.at, c.old, c.upTo = now, old, upTo
		}
	}
	if c.old == nil {
		now := s.now()
		if old, upTo, err = s.count(ctx, on); err != nil {
			return nil, 0, err
		}
		c.at, c.old, c.upTo = now, old, upTo
	}
	return c.old, c.upTo, nil
}

func (s *Store) count(ctx context.Context, on database.Querier) (old map[int64]int, upTo int64, err error) {
	old = map[int64]int{}
	if err = s.db.Row(ctx, on, `SELECT coalesce(max(id), 0) FROM lb.submission`).Scan(&upTo); err == nil {
		upTo -= countMargin
		err = s.countInto(ctx, on, old, `SELECT leaderboard_id, count(*) FROM lb.submission WHERE id <= $1 GROUP BY leaderboard_id`, upTo)
	}
	return old, upTo, err
}

// ranked returns how many standings a board has at this version.
func (s *Store) ranked(ctx context.Context, on database.Querier, board, version int64) (int, error) {
	c := &s.counts
	c.mu.Lock()
	cached, ok := c.ranks[board]
	c.mu.Unlock()
	if ok && cached.version == version {
		return cached.ranked, nil
	}
	cached.version = version
	if err := s.db.Row(ctx, on, `SELECT count(*) FROM own.standing WHERE leaderboard_id = $1`, board).Scan(&cached.ranked); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ranks == nil {
		c.ranks = map[int64]boardCount{}
	}
	c.ranks[board] = cached
	return cached.ranked, nil
}

func (s *Store) countInto(ctx context.Context, on database.Querier, into map[int64]int, statement string, args ...any) error {
	return s.db.Each(ctx, on, func(rows *sql.Rows) error {
		var board int64
		var n int
		err := rows.Scan(&board, &n)
		into[board] += n
		return err
	}, statement, args...)
}
