package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

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

func (u *User) columns() dest { return dest{&u.ID, &u.Name, &u.Banned, &u.CLI, &u.Submissions} }

// hashedID is what is kept of a CLI id: who reads the database can submit for
// nobody. Kernelbot's own rows hold the id itself.
func hashedID(id string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(id)))
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
	return value[bool](t, lockUser, id)
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
		t.lockUser(id)
		provider := cmp.Or(t.provider(id), ProviderCommand)
		t.exec(`INSERT INTO own.account (user_id, provider) VALUES ($1, $2) ON CONFLICT (user_id) DO NOTHING`, id, provider)
		t.exec(`UPDATE lb.user_info SET cli_id = $2, cli_valid = true, cli_auth_provider = $3 WHERE id = $1`, id, hashedID(cliID), provider)
	})
}

// UserByCLIID returns whose valid CLI id this is.
//
// Errors: [ErrNotFound].
func (s *Store) UserByCLIID(ctx context.Context, cliID string) (u User, err error) {
	u.CLI = true
	err = s.read(ctx, "looking for a user", func(t *tx) {
		t.get(dest{&u.ID, &u.Name, &u.Banned}, `SELECT id, coalesce(user_name, ''), is_banned FROM lb.user_info WHERE cli_valid AND (cli_id = $1 OR cli_id = $2 AND cli_id NOT LIKE 'sha256:%')`,
			hashedID(cliID), cliID)
	})
	return u, err
}

// Ban stops a user from submitting, or lets them again. A ban also ends the user's
// sessions and log-in links. Their submissions keep their ranks, as in Kernelbot.
//
// Errors: [ErrNotFound].
func (s *Store) Ban(ctx context.Context, id string, banned bool) error {
	return s.change(ctx, "banning user "+text.Line(id, 40), func(t *tx) {
		if t.exec(`UPDATE lb.user_info SET is_banned = $2 WHERE id = $1`, id, banned) == 0 {
			t.fail(ErrNotFound)
		}
		if banned {
			t.endSessions(id)
		}
	})
}

// EndSessions ends all of a user's sessions and log-in links. The CLI id stays valid.
//
// Errors: [ErrNotFound].
func (s *Store) EndSessions(ctx context.Context, userID string) error {
	return s.change(ctx, "ending a user's sessions", func(t *tx) {
		t.lockUser(userID)
		t.endSessions(userID)
	})
}

func (t *tx) endSessions(userID string) {
	t.exec(`DELETE FROM own.session WHERE user_id = $1`, userID)
	t.exec(`DELETE FROM own.link WHERE user_id = $1`, userID)
}

// Users lists who is known, by id, without log-ins that nobody finished.
func (s *Store) Users(ctx context.Context) (users []User, err error) {
	err = s.read(ctx, "listing users", func(t *tx) {
		var u User
		t.each(u.columns(), func() { users = append(users, u) }, userColumns+`substr(u.id, 1, 5) <> 'temp_' ORDER BY u.id`)
	})
	return users, err
}

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
// HasCLIID or OtherProvider.
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
		t.claimUser(userID, text.Line(name, maxName), provider)
		has := value[bool](t, `SELECT coalesce(cli_valid, false) FROM lb.user_info WHERE id = $1`, userID)
		if has && !reset {
			t.refuse(HasCLIID, "you have a CLI id already; register again to replace it")
		}
		t.exec(`UPDATE lb.user_info SET cli_id = $2, cli_valid = true, cli_auth_provider = $3 WHERE id = $1`, userID, hashedID(cliID), text.Line(provider, 40))
	})
}

// ProviderCommand is the provider of users that an operator made with a CLI id. No
// account elsewhere logs in as one of them.
const ProviderCommand = "kbserve"

// provider returns the provider that a user logs in at, "" if it is unknown.
//
// Users that are older than the table of accounts have no row there. Kernelbot's
// own row names the provider that a CLI id was made with. A CLI id without a
// provider belongs to a person whose provider is unknown, so that no log-in may
// take it over: an operator decides with TieUser. A user with neither has only
// submitted through Kernelbot's bot and holds no credential here, so the first
// log-in with the id takes it.
func (t *tx) provider(userID string) (provider string) {
	t.find(dest{&provider}, `SELECT coalesce(a.provider, nullif(u.cli_auth_provider, ''), CASE WHEN u.cli_id IS NOT NULL THEN $2 END, '')
		FROM lb.user_info u LEFT JOIN own.account a ON a.user_id = u.id WHERE u.id = $1`, userID, ProviderCommand)
	return provider
}

// claimUser makes or renames the user with an id at a provider. The same number may
// be another person's at another provider.
//
// Errors: [*Refusal] with OtherProvider.
func (t *tx) claimUser(userID, name, provider string) {
	t.upsertUser(userID, name)
	t.lockUser(userID)
	switch owner := t.provider(userID); owner {
	case "", provider:
	case ProviderCommand:
		t.refuse(OtherProvider, "user %s here was made by the organizers and is not tied to %s; ask them to tie it to your account", userID, provider)
	default:
		t.refuse(OtherProvider, "user %s here belongs to an account at %s; log in there, not at %s", userID, text.Line(owner, 40), provider)
	}
	t.exec(`INSERT INTO own.account (user_id, provider) VALUES ($1, $2) ON CONFLICT (user_id) DO NOTHING`, userID, provider)
}

// TieUser makes the account with this id at a provider the only one that logs in as
// the user, who is made when new. The user's sessions and log-in links end, because
// they may be those of another provider's account. A CLI id stays valid.
func (s *Store) TieUser(ctx context.Context, id, name, provider string) error {
	if err := checkUserID(id); err != nil {
		return err
	}
	return s.change(ctx, "tying a user to a provider", func(t *tx) {
		t.upsertUser(id, text.Line(name, maxName))
		t.lockUser(id)
		t.exec(`INSERT INTO own.account (user_id, provider) VALUES ($1, $2) ON CONFLICT (user_id) DO UPDATE SET provider = excluded.provider`, id, provider)
		t.endSessions(id)
	})
}

// LogIn makes the user who logged in with a browser, or renames them.
//
// Errors: [*Refusal] with OtherProvider.
func (s *Store) LogIn(ctx context.Context, provider, userID, name string) (User, error) {
	if err := checkUserID(userID); err != nil {
		return User{}, err
	}
	err := s.change(ctx, "logging in", func(t *tx) {
		t.claimUser(userID, text.Line(name, maxName), provider)
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
		return NewRefusal(Invalid, "user id: got %s, want 1 to 20 decimal digits", text.Quote(text.Shorten(id, 40)))
	}
	return nil
}

// known locks a user who must be there.
func (t *tx) known(id string) {
	var banned bool
	if !t.find(dest{&banned}, lockUser, id) {
		t.refuse(UnknownUser, "unknown user %s", text.Quote(text.Shorten(id, 40)))
	}
}

// NewSession begins a browser's session of a user. The token is returned once;
// only its hash is kept. Sessions that are over are removed on the way.
//
// Errors: [ErrNotFound] for a user that is not known.
func (s *Store) NewSession(ctx context.Context, userID string, until time.Time) (token string, err error) {
	err = s.change(ctx, "beginning a session", func(t *tx) { token = t.newSession(userID, until) })
	return token, err
}

func (t *tx) newSession(userID string, until time.Time) (token string) {
	token = database.NewID()
	t.lockUser(userID)
	now := t.now()
	t.exec(`DELETE FROM own.session WHERE until <= $1`, now)
	t.exec(`INSERT INTO own.session (hash, user_id, created_at, until) VALUES ($1, $2, $3, $4)`, hashedID(token), userID, now, until)
	return token
}

// NewLink makes the token of a link that logs one browser in as a user, once. It is
// returned once; only its hash is kept, apart from sessions, because a link that was
// not used must not pass for a session. Links that are over are removed on the way.
//
// Errors: [ErrNotFound] for a user that is not known.
func (s *Store) NewLink(ctx context.Context, userID string, until time.Time) (token string, err error) {
	token = database.NewID()
	err = s.change(ctx, "making a log-in link", func(t *tx) {
		t.lockUser(userID)
		t.exec(`DELETE FROM own.link WHERE until <= $1`, s.now())
		t.exec(`INSERT INTO own.link (hash, user_id, until) VALUES ($1, $2, $3)`, hashedID(token), userID, until)
	})
	return token, err
}

// UserByLink returns the user that a link would log in, without using up the link.
//
// Errors: [ErrNotFound], also when the link was used or is over.
func (s *Store) UserByLink(ctx context.Context, token string) (User, error) {
	return s.user(ctx, `u.id = (SELECT user_id FROM own.link WHERE hash = $1 AND until > $2)`, hashedID(token), s.now())
}

// UseLink removes a link and begins a session of its user, until a time. Of several
// that use one link at once, one gets a session.
//
// Errors: [ErrNotFound], also when the link was used or is over.
func (s *Store) UseLink(ctx context.Context, link string, until time.Time) (token string, err error) {
	err = s.change(ctx, "using a log-in link", func(t *tx) {
		userID := value[string](t, `DELETE FROM own.link WHERE hash = $1 AND until > $2 RETURNING user_id`, hashedID(link), s.now())
		token = t.newSession(userID, until)
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
		return nil, NewRefusal(Invalid, "invites: got %d for %d boards, want 1 to %d for at least one", n, len(boards), maxInvites)
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
			invite := value[int64](t, `INSERT INTO lb.leaderboard_invite (code, created_at) VALUES ($1, $2) RETURNING id`, code, s.now())
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
	if !t.find(dest{&id}, `SELECT id FROM lb.leaderboard WHERE name = $1`, name) {
		t.refuse(UnknownBoard, "unknown board %s", text.Quote(text.Shorten(name, 100)))
	}
	return id
}

// named is the id of a board.
//
// Errors: [ErrNotFound].
func (t *tx) named(name string) int64 {
	return value[int64](t, `SELECT id FROM lb.leaderboard WHERE name = $1`, name)
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
		known := t.find(dest{&id, &owner}, `SELECT id, coalesce(user_id, '') FROM lb.leaderboard_invite WHERE code = $1 {lock}`, code)
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
		t.each(dest{&id, &i.Code, &i.UserID, &i.User, &i.Created, &i.Claimed, &name}, func() {
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
		t.get(dest{&allowed}, `SELECT l.visibility = 'public' OR EXISTS (SELECT 1 FROM lb.leaderboard_invite i JOIN lb.leaderboard_invite_scope c ON c.invite_id = i.id
			WHERE i.user_id = $2 AND c.leaderboard_id = l.id) FROM lb.leaderboard l WHERE l.name = $1`, board, userID)
	})
	return allowed, err
}
