package store

import (
	"context"
	"errors"
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
		if err := s.FinishLogin(ctx, second, "discord", "7", "anna", true); err != nil {
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
