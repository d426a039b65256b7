package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/store/database"
)

// Names in own.setting. Those of [Store.Secret] begin with secretPrefix.
const (
	settingAccepting = "accepting"
	secretPrefix     = "secret:"
)

// Accepting reports whether submissions are taken: they are, unless an admin has
// said otherwise.
func (s *Store) Accepting(ctx context.Context) (bool, error) {
	value, err := s.setting(ctx, s.db.Read, settingAccepting)
	return value != "no", wrap("reading whether submissions are taken", err)
}

// SetAccepting says for all instances whether submissions are taken.
func (s *Store) SetAccepting(ctx context.Context, accepting bool) error {
	value := "yes"
	if !accepting {
		value = "no"
	}
	return s.change(ctx, "saying whether submissions are taken", func(tx *sql.Tx) error {
		_, err := s.db.Exec(ctx, tx, `INSERT INTO own.setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, settingAccepting, value)
		return err
	})
}

// Secret returns 32 random bytes that are kept under a name: made when they are
// asked for first, and the same for all instances and restarts.
func (s *Store) Secret(ctx context.Context, name string) (secret []byte, err error) {
	what := "reading a kept secret"
	value, err := s.setting(ctx, s.db.Read, secretPrefix+name)
	if err != nil {
		return nil, wrap(what, err)
	}
	if value == "" {
		err = s.change(ctx, "keeping a secret", func(tx *sql.Tx) error {
			var b [32]byte
			rand.Read(b[:]) // never fails
			_, err := s.db.Exec(ctx, tx, `INSERT INTO own.setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, secretPrefix+name, hex.EncodeToString(b[:]))
			if err != nil {
				return err
			}
			value, err = s.setting(ctx, tx, secretPrefix+name) // of two at once, the first
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	secret, err = hex.DecodeString(value)
	if err != nil || len(secret) != 32 {
		return nil, fmt.Errorf("%s: got something else than 32 bytes in hex", what)
	}
	return secret, nil
}

// setting is a kept value, "" for none.
func (s *Store) setting(ctx context.Context, on database.Querier, name string) (value string, err error) {
	err = s.db.Row(ctx, on, `SELECT value FROM own.setting WHERE name = $1`, name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return value, err
}

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
