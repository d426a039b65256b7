package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
)

// loginTime is how long a CLI's log-in may take.
const loginTime = 24 * time.Hour

// BeginLogin makes a CLI id that is nobody's yet, for a client that is about to
// log in. It is returned once; only its hash is kept, under a user of Kernelbot's
// form temp_… that [Store.FinishLogin] takes away. Those that nobody finished
// within a day are removed on the way.
func (s *Store) BeginLogin(ctx context.Context, provider string) (cliID string, err error) {
	cliID = database.NewID()
	err = s.change(ctx, "beginning a log-in", func(tx *sql.Tx) error {
		now := s.now()
		_, err := s.db.Exec(ctx, tx, `DELETE FROM lb.user_info WHERE substr(id, 1, 5) = 'temp_' AND NOT cli_valid AND cli_id LIKE 'sha256:%' AND created_at < $1`, database.Stamp{Time: now.Add(-loginTime)})
		if err != nil {
			return err
		}
		name := "temp_" + database.NewID()
		_, err = s.db.Exec(ctx, tx, `INSERT INTO lb.user_info (id, user_name, cli_id, cli_valid, cli_auth_provider, created_at) VALUES ($1, $1, $2, false, $3, $4)`,
			name, hashedID(cliID), text.Line(provider, 40), database.Stamp{Time: now})
		return err
	})
	if err != nil {
		return "", err
	}
	return cliID, nil
}

// FinishLogin makes a CLI id that [Store.BeginLogin] returned the user's, who is
// made or renamed. With reset it takes the place of the one they have.
//
// Errors: [ErrNotFound] for a CLI id that is not known, or used; [*Refusal] with
// HasCLIID.
func (s *Store) FinishLogin(ctx context.Context, cliID, provider, userID, name string, reset bool) error {
	if err := checkUserID(userID); err != nil {
		return err
	}
	return s.change(ctx, "finishing a log-in", func(tx *sql.Tx) error {
		n, err := s.db.Exec(ctx, tx, `DELETE FROM lb.user_info WHERE cli_id = $1 AND NOT cli_valid AND substr(id, 1, 5) = 'temp_' AND created_at >= $2`,
			hashedID(cliID), database.Stamp{Time: s.now().Add(-loginTime)})
		if err != nil {
			return err
		}
		if n == 0 {
			return ErrNotFound
		}
		if err := s.upsertUser(ctx, tx, userID, text.Line(name, maxName)); err != nil {
			return err
		}
		if _, err := s.lockUser(ctx, tx, userID); err != nil {
			return err
		}
		var has bool
		if err := s.db.Row(ctx, tx, `SELECT coalesce(cli_valid, false) FROM lb.user_info WHERE id = $1`, userID).Scan(&has); err != nil {
			return err
		}
		if has && !reset {
			return &Refusal{Why: HasCLIID, Text: "you have a CLI id already; register again to replace it"}
		}
		_, err = s.db.Exec(ctx, tx, `UPDATE lb.user_info SET cli_id = $2, cli_valid = true, cli_auth_provider = $3 WHERE id = $1`, userID, hashedID(cliID), text.Line(provider, 40))
		return err
	})
}

// LogIn makes the user who logged in with a browser, or renames them.
func (s *Store) LogIn(ctx context.Context, provider, userID, name string) (User, error) {
	if err := checkUserID(userID); err != nil {
		return User{}, err
	}
	err := s.change(ctx, "logging in", func(tx *sql.Tx) error {
		if err := s.upsertUser(ctx, tx, userID, text.Line(name, maxName)); err != nil {
			return err
		}
		_, err := s.db.Exec(ctx, tx, `UPDATE lb.user_info SET cli_auth_provider = $2 WHERE id = $1 AND cli_auth_provider IS NULL`, userID, text.Line(provider, 40))
		return err
	})
	if err != nil {
		return User{}, err
	}
	return s.User(ctx, userID)
}

// User reads one user.
//
// Errors: [ErrNotFound].
func (s *Store) User(ctx context.Context, id string) (User, error) {
	return s.user(ctx, `u.id = $1`, id)
}

func (s *Store) user(ctx context.Context, where string, args ...any) (u User, err error) {
	err = s.db.Row(ctx, s.db.Read, `SELECT u.id, coalesce(u.user_name, ''), u.is_banned, coalesce(u.cli_valid, false), (SELECT count(*) FROM lb.submission s WHERE s.user_id = u.id)
		FROM lb.user_info u WHERE `+where, args...).Scan(&u.ID, &u.Name, &u.Banned, &u.CLI, &u.Submissions)
	return u, wrap("reading a user", err)
}

func checkUserID(id string) error {
	if !userID.MatchString(id) {
		return &Refusal{Why: Invalid, Text: fmt.Sprintf("user id: got %s, want 1 to 20 decimal digits", text.Quote(text.Shorten(id, 40)))}
	}
	return nil
}

// known locks a user who must be there.
func (s *Store) known(ctx context.Context, tx *sql.Tx, id string) error {
	_, err := s.lockUser(ctx, tx, id)
	if errors.Is(err, sql.ErrNoRows) {
		err = &Refusal{Why: UnknownUser, Text: fmt.Sprintf("unknown user %s", text.Quote(text.Shorten(id, 40)))}
	}
	return err
}

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
