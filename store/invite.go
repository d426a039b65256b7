package store

import (
	"context"
	"database/sql"
	"errors"
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
	err = s.change(ctx, "making invites", func(tx *sql.Tx) error {
		codes = nil
		var ids []int64
		for _, name := range boards {
			id, err := s.boardID(ctx, tx, name)
			if err != nil {
				return err
			}
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		for range n {
			code := database.NewID()
			var invite int64
			err := s.db.Row(ctx, tx, `INSERT INTO lb.leaderboard_invite (code, created_at) VALUES ($1, $2) RETURNING id`, code, database.Stamp{Time: s.now()}).Scan(&invite)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if _, err := s.db.Exec(ctx, tx, `INSERT INTO lb.leaderboard_invite_scope (invite_id, leaderboard_id) VALUES ($1, $2)`, invite, id); err != nil {
					return err
				}
			}
			codes = append(codes, code)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return codes, nil
}

// boardID is the id of a board that a request names.
//
// Errors: [*Refusal] with UnknownBoard.
func (s *Store) boardID(ctx context.Context, on database.Querier, name string) (id int64, err error) {
	err = s.db.Row(ctx, on, `SELECT id FROM lb.leaderboard WHERE name = $1`, name).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = &Refusal{Why: UnknownBoard, Text: fmt.Sprintf("unknown board %s", text.Quote(text.Shorten(name, 100)))}
	}
	return id, err
}

// ClaimInvite gives an invite to a user and returns its boards. The same user may
// claim it again.
//
// Errors: [*Refusal] with UnknownInvite, InviteTaken or UnknownUser.
func (s *Store) ClaimInvite(ctx context.Context, code, userID string) (boards []string, err error) {
	err = s.change(ctx, "claiming an invite", func(tx *sql.Tx) error {
		if err := s.known(ctx, tx, userID); err != nil {
			return err
		}
		var id int64
		var owner string
		err := s.db.Row(ctx, tx, `SELECT id, coalesce(user_id, '') FROM lb.leaderboard_invite WHERE code = $1 {lock}`, code).Scan(&id, &owner)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return &Refusal{Why: UnknownInvite, Text: "this invite is not known"}
		case err != nil:
			return err
		case owner == "":
			if _, err := s.db.Exec(ctx, tx, `UPDATE lb.leaderboard_invite SET user_id = $2, claimed_at = $3 WHERE id = $1`, id, userID, database.Stamp{Time: s.now()}); err != nil {
				return err
			}
		case owner != userID:
			return &Refusal{Why: InviteTaken, Text: "somebody else has used this invite"}
		}
		boards = nil
		return s.db.Each(ctx, tx, func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			boards = append(boards, name)
			return err
		}, `SELECT l.name FROM lb.leaderboard_invite_scope c JOIN lb.leaderboard l ON l.id = c.leaderboard_id WHERE c.invite_id = $1 ORDER BY l.name`, id)
	})
	if err != nil {
		return nil, err
	}
	return boards, nil
}

// Invites lists the invites to a board, or all with "", the oldest first.
//
// Errors: [*Refusal] with UnknownBoard.
func (s *Store) Invites(ctx context.Context, board string) (invites []Invite, err error) {
	err = s.snapshot(ctx, "listing invites", func(tx *sql.Tx) error {
		invites = nil
		if board != "" {
			if _, err := s.boardID(ctx, tx, board); err != nil {
				return err
			}
		}
		places := map[int64]int{}
		return s.db.Each(ctx, tx, func(rows *sql.Rows) error {
			var id int64
			var i Invite
			var name string
			var created, claimed database.Stamp
			if err := rows.Scan(&id, &i.Code, &i.UserID, &i.User, &created, &claimed, &name); err != nil {
				return err
			}
			at, ok := places[id]
			if !ok {
				i.Created, i.Claimed = created.Time, claimed.Time
				at = len(invites)
				places[id], invites = at, append(invites, i)
			}
			if name != "" {
				invites[at].Boards = append(invites[at].Boards, name)
			}
			return nil
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
	return s.change(ctx, "revoking an invite", func(tx *sql.Tx) error {
		n, err := s.db.Exec(ctx, tx, `DELETE FROM lb.leaderboard_invite WHERE code = $1`, code)
		if err == nil && n == 0 {
			err = ErrNotFound
		}
		return err
	})
}

// Allowed reports whether a user may see a board: it is public, or they have an
// invite to it. userID is "" for somebody who is not known.
//
// Errors: [ErrNotFound] for a board that does not exist.
func (s *Store) Allowed(ctx context.Context, board, userID string) (allowed bool, err error) {
	err = s.db.Row(ctx, s.db.Read, `SELECT l.visibility = 'public' OR EXISTS (SELECT 1 FROM lb.leaderboard_invite i JOIN lb.leaderboard_invite_scope c ON c.invite_id = i.id
		WHERE i.user_id = $2 AND c.leaderboard_id = l.id) FROM lb.leaderboard l WHERE l.name = $1`, board, userID).Scan(&allowed)
	return allowed, wrap("looking at a board", err)
}
