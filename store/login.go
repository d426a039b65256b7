package store

import (
	"context"
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
	err = s.change(ctx, "beginning a log-in", func(t *tx) {
		now := s.now()
		t.exec(`DELETE FROM lb.user_info WHERE substr(id, 1, 5) = 'temp_' AND NOT cli_valid AND cli_id LIKE 'sha256:%' AND created_at < $1`, now.Add(-loginTime))
		name := "temp_" + database.NewID()
		t.exec(`INSERT INTO lb.user_info (id, user_name, cli_id, cli_valid, cli_auth_provider, created_at) VALUES ($1, $1, $2, false, $3, $4)`,
			name, hashedID(cliID), text.Line(provider, 40), now)
	})
	return cliID, err
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
	return s.change(ctx, "finishing a log-in", func(t *tx) {
		n := t.exec(`DELETE FROM lb.user_info WHERE cli_id = $1 AND NOT cli_valid AND substr(id, 1, 5) = 'temp_' AND created_at >= $2`,
			hashedID(cliID), s.now().Add(-loginTime))
		if n == 0 {
			t.fail(ErrNotFound)
		}
		t.upsertUser(userID, text.Line(name, maxName))
		t.lockUser(userID)
		var has bool
		t.get(to{&has}, `SELECT coalesce(cli_valid, false) FROM lb.user_info WHERE id = $1`, userID)
		if has && !reset {
			t.refuse(HasCLIID, "you have a CLI id already; register again to replace it")
		}
		t.exec(`UPDATE lb.user_info SET cli_id = $2, cli_valid = true, cli_auth_provider = $3 WHERE id = $1`, userID, hashedID(cliID), text.Line(provider, 40))
	})
}

// LogIn makes the user who logged in with a browser, or renames them.
func (s *Store) LogIn(ctx context.Context, provider, userID, name string) (User, error) {
	if err := checkUserID(userID); err != nil {
		return User{}, err
	}
	err := s.change(ctx, "logging in", func(t *tx) {
		t.upsertUser(userID, text.Line(name, maxName))
		t.exec(`UPDATE lb.user_info SET cli_auth_provider = $2 WHERE id = $1 AND cli_auth_provider IS NULL`, userID, text.Line(provider, 40))
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
	err = s.read(ctx, "reading a user", func(t *tx) { t.get(u.columns(), userColumns+where, args...) })
	return u, err
}

func checkUserID(id string) error {
	if !userID.MatchString(id) {
		return &Refusal{Why: Invalid, Text: fmt.Sprintf("user id: got %s, want 1 to 20 decimal digits", text.Quote(text.Shorten(id, 40)))}
	}
	return nil
}

// known locks a user who must be there.
func (t *tx) known(id string) {
	var banned bool
	if !t.find(to{&banned}, lockUser, id) {
		t.refuse(UnknownUser, "unknown user %s", text.Quote(text.Shorten(id, 40)))
	}
}

// NewSession begins a browser's session of a user. The token is returned once;
// only its hash is kept. Sessions that are over are removed on the way.
//
// Errors: [ErrNotFound] for a user that is not known.
func (s *Store) NewSession(ctx context.Context, userID string, until time.Time) (token string, err error) {
	token = database.NewID()
	err = s.change(ctx, "beginning a session", func(t *tx) {
		t.lockUser(userID)
		now := s.now()
		t.exec(`DELETE FROM own.session WHERE until <= $1`, now)
		t.exec(`INSERT INTO own.session (hash, user_id, created_at, until) VALUES ($1, $2, $3, $4)`, hashedID(token), userID, now, until)
	})
	return token, err
}

// UserBySession returns whose session this is.
//
// Errors: [ErrNotFound], also when it is over.
func (s *Store) UserBySession(ctx context.Context, token string) (User, error) {
	return s.user(ctx, `u.id = (SELECT user_id FROM own.session WHERE hash = $1 AND until > $2)`, hashedID(token), s.now())
}

// EndSession ends one session; one that is not there is no error.
func (s *Store) EndSession(ctx context.Context, token string) error {
	return s.change(ctx, "ending a session", func(t *tx) {
		t.exec(`DELETE FROM own.session WHERE hash = $1`, hashedID(token))
	})
}
