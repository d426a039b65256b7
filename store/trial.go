package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
)

// TestPrefix begins the names of boards that [Store.RemoveTest] removes.
const TestPrefix = "kbserve-test-"

// testUsers begins the ids of users that were made to test an installation: with
// its 20 digits, such a number is none of Discord's or GitHub's, which have 64 bits.
const testUsers = "99"

// NewTestUser makes a user who exists for a test alone, with a CLI id.
func (s *Store) NewTestUser(ctx context.Context) (id, cliID string, err error) {
	n, err := rand.Int(rand.Reader, big.NewInt(1e18))
	if err != nil {
		return "", "", err
	}
	id = fmt.Sprintf("%s%018d", testUsers, n)
	cliID, err = s.NewCLIID(ctx, id, "test of the installation")
	return id, cliID, err
}

// RemoveTest removes a board whose name begins with [TestPrefix] and everything
// that it made: submissions, their runs and reports, code that nobody else has
// handed in, invites to nothing else, and test users; those who are named, too,
// where they have no submission elsewhere. What was there before is untouched.
//
// Errors: [*Refusal] for another board or user.
func (s *Store) RemoveTest(ctx context.Context, board string, users ...string) error {
	if !strings.HasPrefix(board, TestPrefix) {
		return &Refusal{Why: Invalid, Text: fmt.Sprintf("board %s: want a name that begins with %s", text.Quote(text.Shorten(board, 100)), TestPrefix)}
	}
	for _, id := range users {
		if len(id) != 20 || !strings.HasPrefix(id, testUsers) {
			return &Refusal{Why: Invalid, Text: fmt.Sprintf("user %s: want one that was made for a test", text.Quote(text.Shorten(id, 40)))}
		}
	}
	defer s.counts.forget()
	return s.change(ctx, "removing a test", func(tx *sql.Tx) error {
		var id int64
		if err := s.db.Row(ctx, tx, `SELECT coalesce(max(id), 0) FROM lb.leaderboard WHERE name = $1`, board).Scan(&id); err != nil {
			return err
		}
		made := slices.Clone(users)
		if id > 0 {
			more, err := s.removeTestBoard(ctx, tx, id)
			if err != nil {
				return err
			}
			made = append(made, more...)
		}
		for _, user := range made {
			_, err := s.db.Exec(ctx, tx, `DELETE FROM lb.user_info WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM lb.submission WHERE user_id = $1) AND NOT EXISTS (SELECT 1 FROM lb.leaderboard_invite WHERE user_id = $1)`, user)
			if err != nil {
				return err
			}
		}
		return s.tell(ctx, tx, Signal{Kind: SignalBoard, ID: board}, Signal{Kind: SignalPlanned})
	})
}

// removeTestBoard removes the board, and returns the test users who had to do with
// it.
func (s *Store) removeTestBoard(ctx context.Context, tx *sql.Tx, id int64) (users []string, err error) {
	if err := s.lockWhole(ctx, tx, id); err != nil {
		return nil, err
	}
	users, err = database.Values[string](ctx, s.db, tx, `SELECT id FROM lb.user_info WHERE length(id) = 20 AND substr(id, 1, 2) = '`+testUsers+`' AND (id IN (SELECT user_id FROM lb.submission WHERE leaderboard_id = $1)
		OR id IN (SELECT i.user_id FROM lb.leaderboard_invite i JOIN lb.leaderboard_invite_scope c ON c.invite_id = i.id WHERE c.leaderboard_id = $1)) ORDER BY id`, id)
	if err != nil {
		return nil, err
	}
	codes, err := database.Values[int64](ctx, s.db, tx, `SELECT DISTINCT code_id FROM lb.submission WHERE leaderboard_id = $1 ORDER BY code_id`, id)
	if err != nil {
		return nil, err
	}
	_, err = s.db.Exec(ctx, tx, `DELETE FROM lb.leaderboard_invite WHERE id IN (SELECT invite_id FROM lb.leaderboard_invite_scope WHERE leaderboard_id = $1)
		AND id NOT IN (SELECT invite_id FROM lb.leaderboard_invite_scope WHERE leaderboard_id <> $1)`, id)
	if err == nil {
		err = s.deleteBoard(ctx, tx, id)
	}
	for i := 0; err == nil && i < len(codes); i++ {
		_, err = s.db.Exec(ctx, tx, `DELETE FROM lb.code_files WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM lb.submission WHERE code_id = $1)`, codes[i])
	}
	return users, err
}
