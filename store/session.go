package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/gpu-mode/kbgen/store/database"
)

// NewSession begins a browser's session of a user. The token is returned once;
// only its hash is kept. Sessions that are over are removed on the way.
//
// Errors: [ErrNotFound] for a user that is not known.
func (s *Store) NewSession(ctx context.Context, userID string, until time.Time) (token string, err error) {
	token = database.NewID()
	err = s.change(ctx, "beginning a session", func(tx *sql.Tx) error {
		if _, err := s.lockUser(ctx, tx, userID); err != nil {
			return err
		}
		now := database.Stamp{Time: s.now()}
		if _, err := s.db.Exec(ctx, tx, `DELETE FROM own.session WHERE until <= $1`, now); err != nil {
			return err
		}
		_, err := s.db.Exec(ctx, tx, `INSERT INTO own.session (hash, user_id, created_at, until) VALUES ($1, $2, $3, $4)`, hashedID(token), userID, now, database.Stamp{Time: until})
		return err
	})
	if err != nil {
		return "", err
	}
	return token, nil
}

// UserBySession returns whose session this is.
//
// Errors: [ErrNotFound], also when it is over.
func (s *Store) UserBySession(ctx context.Context, token string) (User, error) {
	return s.user(ctx, `u.id = (SELECT user_id FROM own.session WHERE hash = $1 AND until > $2)`, hashedID(token), database.Stamp{Time: s.now()})
}

// EndSession ends one session; one that is not there is no error.
func (s *Store) EndSession(ctx context.Context, token string) error {
	return s.change(ctx, "ending a session", func(tx *sql.Tx) error {
		_, err := s.db.Exec(ctx, tx, `DELETE FROM own.session WHERE hash = $1`, hashedID(token))
		return err
	})
}

// EndSessions ends all sessions of a user.
func (s *Store) EndSessions(ctx context.Context, userID string) error {
	return s.change(ctx, "ending a user's sessions", func(tx *sql.Tx) error {
		_, err := s.db.Exec(ctx, tx, `DELETE FROM own.session WHERE user_id = $1`, userID)
		return err
	})
}
