package store

import (
	"context"
	"database/sql"
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
