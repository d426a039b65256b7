package store

import (
	"context"
	"strings"

	"github.com/gpu-mode/kbgen/store/database"
)

// Unavailable reports whether an error is about the database as a whole: its disk is
// full or read-only, or it cannot be reached. The request itself may be fine.
func Unavailable(err error) bool { return database.Unavailable(err) }

const (
	settingProbe = "write probe"

	// probeSize is that of a small submission, in bytes.
	probeSize = 8 << 10
)

// CheckWrite stores as much as a small submission needs, and removes it again.
func (s *Store) CheckWrite(ctx context.Context) error {
	const what = "checking that the database can be written"
	err := s.change(ctx, what, func(t *tx) {
		t.exec(`INSERT INTO own.setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, settingProbe, strings.Repeat("x", probeSize))
	})
	if err != nil {
		return err
	}
	return s.change(ctx, what, func(t *tx) { t.exec(`DELETE FROM own.setting WHERE name = $1`, settingProbe) })
}
