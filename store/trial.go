package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
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
		return NewRefusal(Invalid, "board %s: want a name that begins with %s", text.Quote(text.Shorten(board, 100)), TestPrefix)
	}
	for _, id := range users {
		if len(id) != 20 || !strings.HasPrefix(id, testUsers) {
			return NewRefusal(Invalid, "user %s: want one that was made for a test", text.Quote(text.Shorten(id, 40)))
		}
	}
	defer s.counts.forget()
	return s.change(ctx, "removing a test", func(t *tx) {
		id := value[int64](t, `SELECT coalesce(max(id), 0) FROM lb.leaderboard WHERE name = $1`, board)
		made := slices.Clone(users)
		if id > 0 {
			made = append(made, t.removeTestBoard(id)...)
		}
		for _, user := range made {
			t.exec(`DELETE FROM lb.user_info WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM lb.submission WHERE user_id = $1) AND NOT EXISTS (SELECT 1 FROM lb.leaderboard_invite WHERE user_id = $1)`, user)
		}
		t.tell(Signal{Kind: SignalBoard, ID: board}, Signal{Kind: SignalPlanned})
	})
}

// removeTestBoard removes the board, and returns the test users who had to do with
// it.
func (t *tx) removeTestBoard(id int64) (users []string) {
	t.lockWhole(id)
	users = values[string](t, `SELECT id FROM lb.user_info WHERE length(id) = 20 AND substr(id, 1, 2) = '`+testUsers+`' AND (id IN (SELECT user_id FROM lb.submission WHERE leaderboard_id = $1)
		OR id IN (SELECT i.user_id FROM lb.leaderboard_invite i JOIN lb.leaderboard_invite_scope c ON c.invite_id = i.id WHERE c.leaderboard_id = $1)) ORDER BY id`, id)
	codes := values[int64](t, `SELECT DISTINCT code_id FROM lb.submission WHERE leaderboard_id = $1 ORDER BY code_id`, id)
	t.exec(`DELETE FROM lb.leaderboard_invite WHERE id IN (SELECT invite_id FROM lb.leaderboard_invite_scope WHERE leaderboard_id = $1)
		AND id NOT IN (SELECT invite_id FROM lb.leaderboard_invite_scope WHERE leaderboard_id <> $1)`, id)
	t.deleteBoard(id)
	for _, code := range codes {
		t.exec(`DELETE FROM lb.code_files WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM lb.submission WHERE code_id = $1)`, code)
	}
	return users
}
