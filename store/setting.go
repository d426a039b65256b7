package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
)

// Names in own.setting. Those of [Store.Secret] begin with secretPrefix.
const (
	settingAccepting = "accepting"
	secretPrefix     = "secret:"
)

// Accepting reports whether submissions are taken: they are, unless an admin has
// said otherwise.
func (s *Store) Accepting(ctx context.Context) (accepting bool, err error) {
	err = s.read(ctx, "reading whether submissions are taken", func(t *tx) { accepting = t.setting(settingAccepting) != "no" })
	return accepting, err
}

// SetAccepting says for all instances whether submissions are taken.
func (s *Store) SetAccepting(ctx context.Context, accepting bool) error {
	value := "yes"
	if !accepting {
		value = "no"
	}
	return s.change(ctx, "saying whether submissions are taken", func(t *tx) {
		t.exec(`INSERT INTO own.setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, settingAccepting, value)
	})
}

// Secret returns 32 random bytes that are kept under a name: made when they are
// asked for first, and the same for all instances and restarts.
func (s *Store) Secret(ctx context.Context, name string) (secret []byte, err error) {
	what := "reading a kept secret"
	var value string
	err = s.read(ctx, what, func(t *tx) { value = t.setting(secretPrefix + name) })
	if err == nil && value == "" {
		err = s.change(ctx, "keeping a secret", func(t *tx) {
			var b [32]byte
			rand.Read(b[:]) // never fails
			t.exec(`INSERT INTO own.setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, secretPrefix+name, hex.EncodeToString(b[:]))
			value = t.setting(secretPrefix + name) // of two at once, the first
		})
	}
	if err != nil {
		return nil, err
	}
	secret, err = hex.DecodeString(value)
	if err != nil || len(secret) != 32 {
		return nil, fmt.Errorf("%s: got something else than 32 bytes in hex", what)
	}
	return secret, nil
}

// setting is a kept value, "" for none.
func (t *tx) setting(name string) (value string) {
	t.find(to{&value}, `SELECT value FROM own.setting WHERE name = $1`, name)
	return value
}

const settingHook = "webhook seen"

// SawEvent keeps that an event of Buildkite's came at the time of at.
func (s *Store) SawEvent(ctx context.Context, at time.Time) error {
	return s.change(ctx, "keeping when an event came", func(t *tx) {
		t.exec(`INSERT INTO own.setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
			settingHook, at)
	})
}

// Events returns when an event of Buildkite's came last, and when a run finished
// last; zero: none ever did.
func (s *Store) Events(ctx context.Context) (event, finished time.Time, err error) {
	err = s.snapshot(ctx, "reading when events came", func(t *tx) {
		t.find(to{&event}, `SELECT value FROM own.setting WHERE name = $1`, settingHook)
		t.get(to{&finished}, `SELECT max(finished_at) FROM own.planned_run`)
	})
	return event, finished, err
}
