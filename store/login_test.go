package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestSessions(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		now := time.Now()
		s.now = func() time.Time { return now }
		if _, err := s.NewSession(ctx, "7", now.Add(time.Hour)); !errors.Is(err, ErrNotFound) {
			t.Errorf("NewSession of nobody: %v, want ErrNotFound", err)
		}
		var tokens []string
		for _, user := range []string{"7", "7", "8"} {
			if _, err := s.LogIn(ctx, "github", user, "ann"); err != nil {
				t.Fatal(err)
			}
			token, err := s.NewSession(ctx, user, now.Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, token)
		}
		whose := func(token string) string {
			t.Helper()
			u, err := s.UserBySession(ctx, token)
			if errors.Is(err, ErrNotFound) {
				return ""
			} else if err != nil {
				t.Fatal(err)
			}
			return u.ID + " " + u.Name
		}
		expect := func(want ...string) {
			t.Helper()
			for i, token := range tokens {
				if got := whose(token); got != want[i] {
					t.Errorf("session %d is %q, want %q", i, got, want[i])
				}
			}
		}
		expect("7 ann", "7 ann", "8 ann")
		var kept string
		if err := s.db.Row(ctx, s.db.Read, `SELECT min(hash) FROM own.session`).Scan(&kept); err != nil || whose(kept) != "" || whose("") != "" {
			t.Errorf("what the database keeps opens a session, %v", err)
		}
		if err := s.EndSession(ctx, tokens[0]); err != nil {
			t.Fatal(err)
		}
		expect("", "7 ann", "8 ann")
		if _, err := s.db.Exec(ctx, s.db.Write, `DELETE FROM own.session WHERE user_id = $1`, "7"); err != nil {
			t.Fatal(err)
		}
		expect("", "", "8 ann")
		now = now.Add(time.Hour)
		expect("", "", "")
		if _, err := s.NewSession(ctx, "7", now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s, "own.session"); n != 1 {
			t.Errorf("%d sessions are kept, want those that are not over: 1", n)
		}
	})
}

func TestLogInOfACLI(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		now := time.Now()
		s.now = func() time.Time { return now }
		begin := func() string {
			t.Helper()
			id, err := s.BeginLogin(ctx, "github")
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		first := begin()
		if _, err := s.UserByCLIID(ctx, first); !errors.Is(err, ErrNotFound) {
			t.Errorf("a CLI id that is nobody's: %v, want ErrNotFound", err)
		}
		if users, err := s.Users(ctx); err != nil || len(users) != 0 {
			t.Errorf("Users = %v, %v; want none while somebody logs in", users, err)
		}
		if err := s.FinishLogin(ctx, first, "github", "x7", "ann", false); err == nil {
			t.Error("a user id that is no number is taken")
		}
		if err := s.FinishLogin(ctx, first, "github", "7", "ann", false); err != nil {
			t.Fatal(err)
		}
		if u, err := s.UserByCLIID(ctx, first); err != nil || u.ID != "7" || u.Name != "ann" {
			t.Errorf("UserByCLIID = %+v, %v", u, err)
		}
		for _, id := range []string{first, "", "none"} {
			if err := s.FinishLogin(ctx, id, "github", "8", "bob", true); !errors.Is(err, ErrNotFound) {
				t.Errorf("a CLI id that was used, or never made: %v, want ErrNotFound", err)
			}
		}
		second := begin()
		refusal(t, s.FinishLogin(ctx, second, "github", "7", "ann", false), HasCLIID, "already")
		if u, err := s.UserByCLIID(ctx, first); err != nil || u.ID != "7" {
			t.Errorf("after a refusal, UserByCLIID = %+v, %v", u, err)
		}
		if err := s.FinishLogin(ctx, second, "github", "7", "anna", true); err != nil {
			t.Fatal(err)
		}
		if _, err := s.UserByCLIID(ctx, first); !errors.Is(err, ErrNotFound) {
			t.Errorf("a CLI id that was replaced: %v, want ErrNotFound", err)
		}
		if u, err := s.UserByCLIID(ctx, second); err != nil || u.ID != "7" || u.Name != "anna" {
			t.Errorf("UserByCLIID = %+v, %v", u, err)
		}
		old := begin()
		now = now.Add(25 * time.Hour)
		if err := s.FinishLogin(ctx, old, "github", "9", "eve", false); !errors.Is(err, ErrNotFound) {
			t.Errorf("a log-in that took a day: %v, want ErrNotFound", err)
		}
		begin()
		if n := count(t, s, "lb.user_info"); n != 2 {
			t.Errorf("%d users are kept, want one and the last log-in", n)
		}
	})
}

func TestLogInRenames(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		for _, name := range []string{"ann", "anna", ""} {
			u, err := s.LogIn(ctx, "discord", "7", name)
			if name == "" {
				name = "anna" // an empty name keeps the old one
			}
			if err != nil || u != (User{ID: "7", Name: name}) {
				t.Errorf("LogIn = %+v, %v; want user 7, %s", u, err, name)
			}
		}
		if _, err := s.LogIn(ctx, "discord", "seven", "x"); err == nil {
			t.Error("a user id that is no number is taken")
		}
		if _, err := s.User(ctx, "8"); !errors.Is(err, ErrNotFound) {
			t.Errorf("User(8): %v, want ErrNotFound", err)
		}
	})
}

// A link gives one session, however many use it at once, and is none itself.
func TestLinkGivesOneSession(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		if _, err := s.NewLink(ctx, "7", time.Now().Add(time.Hour)); !errors.Is(err, ErrNotFound) {
			t.Errorf("NewLink of nobody: %v, want ErrNotFound", err)
		}
		if _, err := s.LogIn(ctx, "github", "7", "ann"); err != nil {
			t.Fatal(err)
		}
		link, err := s.NewLink(ctx, "7", time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.UserBySession(ctx, link); !errors.Is(err, ErrNotFound) {
			t.Errorf("UserBySession of a link: %v, want ErrNotFound", err)
		}
		if u, err := s.UserByLink(ctx, link); err != nil || u.ID != "7" {
			t.Errorf("UserByLink = %+v, %v; want user 7", u, err)
		}
		var wait sync.WaitGroup
		var sessions atomic.Int32
		for range 30 {
			wait.Go(func() {
				token, err := s.UseLink(ctx, link, time.Now().Add(time.Hour))
				if err == nil {
					sessions.Add(1)
					if u, err := s.UserBySession(ctx, token); err != nil || u.ID != "7" {
						t.Errorf("UserBySession = %+v, %v; want user 7", u, err)
					}
				} else if !errors.Is(err, ErrNotFound) {
					t.Errorf("UseLink: %v", err)
				}
			})
		}
		wait.Wait()
		if n := count(t, s, "own.session"); n != 1 || sessions.Load() != 1 {
			t.Errorf("30 uses of one link gave %d sessions, of which %d are stored; want 1", sessions.Load(), n)
		}
		old, err := s.NewLink(ctx, "7", time.Now().Add(-time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.UseLink(ctx, old, time.Now().Add(time.Hour)); !errors.Is(err, ErrNotFound) {
			t.Errorf("UseLink of a link that is over: %v, want ErrNotFound", err)
		}
	})
}

// A ban ends sessions and links of its user alone, as EndSessions does.
func TestSessionsEnd(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		for what, end := range map[string]func() error{
			"a ban":       func() error { return s.Ban(ctx, "7", true) },
			"EndSessions": func() error { return s.EndSessions(ctx, "7") },
		} {
			tokens := map[string][2]string{}
			for _, user := range []string{"7", "8"} {
				if _, err := s.LogIn(ctx, "github", user, "user "+user); err != nil {
					t.Fatal(err)
				}
				session, err := s.NewSession(ctx, user, time.Now().Add(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				link, err := s.NewLink(ctx, user, time.Now().Add(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				tokens[user] = [2]string{session, link}
			}
			cli, err := s.NewCLIID(ctx, "7", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.UserBySession(ctx, tokens["7"][0]); err != nil {
				t.Errorf("a session after a new CLI id: %v", err)
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if _, err := s.UserBySession(ctx, tokens["7"][0]); !errors.Is(err, ErrNotFound) {
				t.Errorf("a session after %s: %v, want ErrNotFound", what, err)
			}
			if _, err := s.UserByLink(ctx, tokens["7"][1]); !errors.Is(err, ErrNotFound) {
				t.Errorf("a link after %s: %v, want ErrNotFound", what, err)
			}
			if _, err := s.UserBySession(ctx, tokens["8"][0]); err != nil {
				t.Errorf("another user's session after %s: %v", what, err)
			}
			if _, err := s.UserByLink(ctx, tokens["8"][1]); err != nil {
				t.Errorf("another user's link after %s: %v", what, err)
			}
			if _, err := s.UserByCLIID(ctx, cli); err != nil {
				t.Errorf("the CLI id after %s: %v", what, err)
			}
		}
		if err := s.EndSessions(ctx, "9"); !errors.Is(err, ErrNotFound) {
			t.Errorf("EndSessions of nobody: %v, want ErrNotFound", err)
		}
	})
}

// One id at two providers is two people: who has it first keeps it.
func TestUsersBelongToTheirProvider(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		logIn := func(user, provider string, taken bool) {
			t.Helper()
			_, err := s.LogIn(ctx, provider, user, "from "+provider)
			if taken && err != nil {
				t.Errorf("LogIn(%s, %s): %v", provider, user, err)
			} else if !taken {
				refusal(t, err, OtherProvider, user)
			}
			cli, err := s.BeginLogin(ctx, provider)
			if err != nil {
				t.Fatal(err)
			}
			err = s.FinishLogin(ctx, cli, provider, user, "", true)
			if taken && err != nil {
				t.Errorf("FinishLogin(%s, %s): %v", provider, user, err)
			} else if !taken {
				refusal(t, err, OtherProvider, user)
			}
		}
		if _, err := s.NewCLIID(ctx, "184017", "ann"); err != nil {
			t.Fatal(err)
		}
		logIn("184017", "github", false)
		if u, err := s.User(ctx, "184017"); err != nil || u.Name != "ann" {
			t.Errorf("a refused log-in renamed the user: %+v, %v", u, err)
		}
		session, err := s.NewSession(ctx, "184017", time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.TieUser(ctx, "184017", "", "github"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.UserBySession(ctx, session); !errors.Is(err, ErrNotFound) {
			t.Errorf("a session from before the tie: %v, want ErrNotFound", err)
		}
		logIn("184017", "github", true)
		logIn("184017", "discord", false)
		logIn("7", "discord", true)
		if _, err := s.NewCLIID(ctx, "7", ""); err != nil { // as on the user's page
			t.Fatal(err)
		}
		logIn("7", "discord", true)
		logIn("7", "github", false)

		// Rows that are older than the table of accounts.
		for user, row := range map[string][2]any{"21": {nil, nil}, "22": {"clear-id", nil}, "23": {"other-id", "discord"}, "24": {nil, "google"}} {
			if _, err := s.db.Exec(ctx, s.db.Write, `INSERT INTO lb.user_info (id, user_name, cli_id, cli_valid, cli_auth_provider) VALUES ($1, 'old', $2, true, $3)`, user, row[0], row[1]); err != nil {
				t.Fatal(err)
			}
		}
		logIn("21", "github", true)
		logIn("21", "discord", false)
		logIn("22", "github", false)
		logIn("23", "github", false)
		if _, err := s.NewCLIID(ctx, "23", ""); err != nil { // does not take the user from Discord
			t.Fatal(err)
		}
		logIn("23", "github", false)
		logIn("23", "discord", true)
		logIn("24", "github", false)
	})
}

// Of two providers' accounts with one new id that log in at once, one has it.
func TestANewUserBelongsToOneProvider(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		for i := range 10 {
			var wait sync.WaitGroup
			var taken atomic.Int32
			for _, provider := range []string{"github", "discord"} {
				wait.Go(func() {
					if _, err := s.LogIn(context.Background(), provider, fmt.Sprint(100+i), "x"); err == nil {
						taken.Add(1)
					}
				})
			}
			wait.Wait()
			if taken.Load() != 1 {
				t.Errorf("user %d: %d log-ins were taken, want 1", 100+i, taken.Load())
			}
		}
	})
}
