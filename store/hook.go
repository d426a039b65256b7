package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/gpu-mode/kbgen/store/database"
)

const settingHook = "webhook seen"

// SawEvent keeps that an event of Buildkite's came at the time of at.
func (s *Store) SawEvent(ctx context.Context, at time.Time) error {
	return s.change(ctx, "keeping when an event came", func(tx *sql.Tx) error {
		_, err := s.db.Exec(ctx, tx, `INSERT INTO own.setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
			settingHook, database.Stamp{Time: at})
		return err
	})
}

// Events returns when an event of Buildkite's came last, and when a run finished
// last; zero: none ever did.
func (s *Store) Events(ctx context.Context) (event, finished time.Time, err error) {
	err = s.snapshot(ctx, "reading when events came", func(tx *sql.Tx) error {
		value, err := s.setting(ctx, tx, settingHook)
		if err != nil {
			return err
		}
		if value != "" {
			var at database.Stamp
			if err := at.Scan(value); err != nil {
				return err
			}
			event = at.Time
		}
		var last database.Stamp
		err = s.db.Row(ctx, tx, `SELECT max(finished_at) FROM own.planned_run`).Scan(&last)
		finished = last.Time
		return err
	})
	return event, finished, err
}
