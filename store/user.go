package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
)

// A User is somebody who submits.
type User struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Banned      bool   `json:"banned"`
	CLI         bool   `json:"cli"` // has a CLI id, and may submit through the CLI
	Submissions int    `json:"submissions"`
}

const userColumns = `SELECT u.id, coalesce(u.user_name, ''), u.is_banned, coalesce(u.cli_valid, false), (SELECT count(*) FROM lb.submission s WHERE s.user_id = u.id) FROM lb.user_info u WHERE `

func (u *User) columns() to { return to{&u.ID, &u.Name, &u.Banned, &u.CLI, &u.Submissions} }

// hashedID is what is kept of a CLI id: who reads the database can submit for
// nobody. Kernelbot's own rows hold the id itself.
func hashedID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// upsertUser makes the user's row, or renames it; rankings show the new name.
func (t *tx) upsertUser(id, name string) {
	if t.exec(`INSERT INTO lb.user_info (id, user_name) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`, id, name) > 0 || name == "" {
		return
	}
	if t.exec(`UPDATE lb.user_info SET user_name = $2 WHERE id = $1 AND user_name IS DISTINCT FROM $2`, id, name) == 0 {
		return
	}
	t.moved(`l.id IN (SELECT s.leaderboard_id FROM lb.submission s WHERE s.user_id = $1)`, id)
}

const lockUser = `SELECT is_banned FROM lb.user_info WHERE id = $1 {lock}`

// lockUser makes everything that may change the user's standings wait for this
// transaction.
func (t *tx) lockUser(id string) (banned bool) {
	t.get(to{&banned}, lockUser, id)
	return banned
}

// NewCLIID gives a user, who is made when new, a CLI id, in place of any that was
// there. It is returned once; only its hash is kept.
func (s *Store) NewCLIID(ctx context.Context, id, name string) (cliID string, err error) {
	name = text.Line(name, maxName)
	if err := checkUserID(id); err != nil {
		return "", err
	}
	cliID = database.NewID()
	return cliID, s.change(ctx, "making a CLI id", func(t *tx) {
		t.upsertUser(id, name)
		t.exec(`UPDATE lb.user_info SET cli_id = $2, cli_valid = true, cli_auth_provider = 'kbserve' WHERE id = $1`, id, hashedID(cliID))
	})
}

// UserByCLIID returns whose valid CLI id this is.
//
// Errors: [ErrNotFound].
func (s *Store) UserByCLIID(ctx context.Context, cliID string) (u User, err error) {
	u.CLI = true
	err = s.read(ctx, "looking for a user", func(t *tx) {
		t.get(to{&u.ID, &u.Name, &u.Banned}, `SELECT id, coalesce(user_name, ''), is_banned FROM lb.user_info WHERE cli_valid AND (cli_id = $1 OR cli_id = $2 AND cli_id NOT LIKE 'sha256:%')`,
			hashedID(cliID), cliID)
	})
	return u, err
}

// Ban stops a user from submitting, or lets them again. What they have keeps its
// rank, as in Kernelbot.
//
// Errors: [ErrNotFound].
func (s *Store) Ban(ctx context.Context, id string, banned bool) error {
	return s.change(ctx, "banning user "+text.Line(id, 40), func(t *tx) {
		if t.exec(`UPDATE lb.user_info SET is_banned = $2 WHERE id = $1`, id, banned) == 0 {
			t.fail(ErrNotFound)
		}
	})
}

// Users lists who is known, by id, without log-ins that nobody finished.
func (s *Store) Users(ctx context.Context) (users []User, err error) {
	err = s.read(ctx, "listing users", func(t *tx) {
		var u User
		t.each(u.columns(), func() { users = append(users, u) }, userColumns+`substr(u.id, 1, 5) <> 'temp_' ORDER BY u.id`)
	})
	return users, err
}
