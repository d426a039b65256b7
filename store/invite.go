package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
)

// maxInvites is how many codes are made at a time.
const maxInvites = 10_000

// An Invite lets the one user who claims it see closed boards and submit to them.
type Invite struct {
	Code         string
	Boards       []string // by name
	UserID, User string   // "" until it is claimed
	Created      time.Time
	Claimed      time.Time // zero until then
}

// NewInvites makes n codes, each of which lets one user onto all of the boards.
//
// Errors: [*Refusal] with UnknownBoard or Invalid.
func (s *Store) NewInvites(ctx context.Context, boards []string, n int) (codes []string, err error) {
	if n < 1 || n > maxInvites || len(boards) == 0 {
		return nil, &Refusal{Why: Invalid, Text: fmt.Sprintf("invites: got %d for %d boards, want 1 to %d for at least one", n, len(boards), maxInvites)}
	}
	err = s.change(ctx, "making invites", func(t *tx) {
		codes = nil
		var ids []int64
		for _, name := range boards {
			if id := t.boardID(name); !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		for range n {
			code := database.NewID()
			var invite int64
			t.get(to{&invite}, `INSERT INTO lb.leaderboard_invite (code, created_at) VALUES ($1, $2) RETURNING id`, code, s.now())
			for _, id := range ids {
				t.exec(`INSERT INTO lb.leaderboard_invite_scope (invite_id, leaderboard_id) VALUES ($1, $2)`, invite, id)
			}
			codes = append(codes, code)
		}
	})
	return codes, err
}

// boardID is the id of a board that a request names.
//
// Errors: [*Refusal] with UnknownBoard.
func (t *tx) boardID(name string) (id int64) {
	if !t.find(to{&id}, `SELECT id FROM lb.leaderboard WHERE name = $1`, name) {
		t.refuse(UnknownBoard, "unknown board %s", text.Quote(text.Shorten(name, 100)))
	}
	return id
}

// named is the id of a board.
//
// Errors: [ErrNotFound].
func (t *tx) named(name string) (id int64) {
	t.get(to{&id}, `SELECT id FROM lb.leaderboard WHERE name = $1`, name)
	return id
}

// ClaimInvite gives an invite to a user and returns its boards. The same user may
// claim it again.
//
// Errors: [*Refusal] with UnknownInvite, InviteTaken or UnknownUser.
func (s *Store) ClaimInvite(ctx context.Context, code, userID string) (boards []string, err error) {
	err = s.change(ctx, "claiming an invite", func(t *tx) {
		t.known(userID)
		var id int64
		var owner string
		known := t.find(to{&id, &owner}, `SELECT id, coalesce(user_id, '') FROM lb.leaderboard_invite WHERE code = $1 {lock}`, code)
		switch {
		case !known:
			t.refuse(UnknownInvite, "this invite is not known")
		case owner == "":
			t.exec(`UPDATE lb.leaderboard_invite SET user_id = $2, claimed_at = $3 WHERE id = $1`, id, userID, s.now())
		case owner != userID:
			t.refuse(InviteTaken, "somebody else has used this invite")
		}
		boards = values[string](t, `SELECT l.name FROM lb.leaderboard_invite_scope c JOIN lb.leaderboard l ON l.id = c.leaderboard_id WHERE c.invite_id = $1 ORDER BY l.name`, id)
	})
	return boards, err
}

// Invites lists the invites to a board, or all with "", the oldest first.
//
// Errors: [*Refusal] with UnknownBoard.
func (s *Store) Invites(ctx context.Context, board string) (invites []Invite, err error) {
	err = s.snapshot(ctx, "listing invites", func(t *tx) {
		invites = nil
		if board != "" {
			t.boardID(board)
		}
		places := map[int64]int{}
		var id int64
		var i Invite
		var name string
		t.each(to{&id, &i.Code, &i.UserID, &i.User, &i.Created, &i.Claimed, &name}, func() {
			at, ok := places[id]
			if !ok {
				at = len(invites)
				places[id], invites = at, append(invites, i)
			}
			if name != "" {
				invites[at].Boards = append(invites[at].Boards, name)
			}
		}, `SELECT i.id, i.code, coalesce(i.user_id, ''), coalesce(u.user_name, ''), i.created_at, i.claimed_at, coalesce(l.name, '')
			FROM lb.leaderboard_invite i LEFT JOIN lb.user_info u ON u.id = i.user_id
			LEFT JOIN lb.leaderboard_invite_scope c ON c.invite_id = i.id LEFT JOIN lb.leaderboard l ON l.id = c.leaderboard_id
			WHERE $1 = '' OR i.id IN (SELECT c.invite_id FROM lb.leaderboard_invite_scope c JOIN lb.leaderboard l ON l.id = c.leaderboard_id WHERE l.name = $1)
			ORDER BY i.id, l.name`, board)
	})
	return invites, err
}

// RevokeInvite removes an invite; whoever claimed it loses what it gave.
//
// Errors: [ErrNotFound].
func (s *Store) RevokeInvite(ctx context.Context, code string) error {
	return s.change(ctx, "revoking an invite", func(t *tx) {
		if t.exec(`DELETE FROM lb.leaderboard_invite WHERE code = $1`, code) == 0 {
			t.fail(ErrNotFound)
		}
	})
}

// Allowed reports whether a user may see a board: it is public, or they have an
// invite to it. userID is "" for somebody who is not known.
//
// Errors: [ErrNotFound] for a board that does not exist.
func (s *Store) Allowed(ctx context.Context, board, userID string) (allowed bool, err error) {
	err = s.read(ctx, "looking at a board", func(t *tx) {
		t.get(to{&allowed}, `SELECT l.visibility = 'public' OR EXISTS (SELECT 1 FROM lb.leaderboard_invite i JOIN lb.leaderboard_invite_scope c ON c.invite_id = i.id
			WHERE i.user_id = $2 AND c.leaderboard_id = l.id) FROM lb.leaderboard l WHERE l.name = $1`, board, userID)
	})
	return allowed, err
}
