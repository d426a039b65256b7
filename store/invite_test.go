package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

func TestInvites(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		closed, other := testBoard("closed"), testBoard("other")
		closed.Visibility, other.Visibility = Closed, Closed
		save(t, s, closed, other, testBoard("open"))
		for _, user := range []string{"7", "8"} {
			if _, err := s.LogIn(ctx, "github", user, "user "+user); err != nil {
				t.Fatal(err)
			}
		}
		allowed := func(board, user string, want bool) {
			t.Helper()
			if got, err := s.Allowed(ctx, board, user); err != nil || got != want {
				t.Errorf("Allowed(%s, %s) = %t, %v; want %t", board, user, got, err, want)
			}
		}
		allowed("open", "", true)
		allowed("closed", "", false)
		allowed("closed", "7", false)
		if _, err := s.Allowed(ctx, "none", "7"); !errors.Is(err, ErrNotFound) {
			t.Errorf("Allowed on no board: %v, want ErrNotFound", err)
		}
		_, err := s.NewInvites(ctx, []string{"closed", "none"}, 1)
		refusal(t, err, UnknownBoard, "none")
		_, err = s.NewInvites(ctx, nil, 1)
		refusal(t, err, Invalid, "0 boards")
		codes, err := s.NewInvites(ctx, []string{"other", "closed", "other"}, 3)
		if err != nil || len(codes) != 3 || count(t, s, "lb.leaderboard_invite") != 3 {
			t.Fatalf("NewInvites made %d codes, %v", len(codes), err)
		}
		_, err = s.ClaimInvite(ctx, codes[0], "99")
		refusal(t, err, UnknownUser, "99")
		for range 2 { // the same user again is no fault
			if boards, err := s.ClaimInvite(ctx, codes[0], "7"); err != nil || !slices.Equal(boards, []string{"closed", "other"}) {
				t.Errorf("ClaimInvite = %v, %v", boards, err)
			}
		}
		_, err = s.ClaimInvite(ctx, codes[0], "8")
		refusal(t, err, InviteTaken, "somebody else")
		_, err = s.ClaimInvite(ctx, "none", "8")
		refusal(t, err, UnknownInvite, "not known")
		allowed("closed", "7", true)
		allowed("closed", "8", false)
		if _, err := s.Accept(ctx, submission("closed", "H100", "7")); err != nil {
			t.Errorf("a submission with an invite: %v", err)
		}
		for board, want := range map[string]int{"": 3, "closed": 3, "open": 0} {
			list, err := s.Invites(ctx, board)
			if err != nil || len(list) != want {
				t.Errorf("Invites(%q) = %d, %v; want %d", board, len(list), err, want)
			}
			if want > 0 {
				i := list[0]
				if i.Code != codes[0] || i.UserID != "7" || i.User != "user 7" || !slices.Equal(i.Boards, []string{"closed", "other"}) || i.Created.IsZero() || i.Claimed.Before(i.Created) {
					t.Errorf("the first invite is %+v", i)
				}
				if i := list[1]; i.UserID != "" || !i.Claimed.IsZero() {
					t.Errorf("an invite that nobody claimed is %+v", i)
				}
			}
		}
		if err := s.RevokeInvite(ctx, codes[0]); err != nil {
			t.Fatal(err)
		}
		allowed("closed", "7", false)
		if err := s.RevokeInvite(ctx, codes[0]); !errors.Is(err, ErrNotFound) {
			t.Errorf("a second RevokeInvite: %v, want ErrNotFound", err)
		}
	})
}

// Of many who claim one invite at once, one has it.
func TestAnInviteIsForOne(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		codes, err := s.NewInvites(ctx, []string{"sort"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var wait sync.WaitGroup
		claimed := 0
		for i := range 8 {
			user := fmt.Sprint(i + 1)
			if _, err := s.LogIn(ctx, "github", user, ""); err != nil {
				t.Fatal(err)
			}
			wait.Go(func() {
				_, err := s.ClaimInvite(ctx, codes[0], user)
				var refused *Refusal
				if err != nil && (!errors.As(err, &refused) || refused.Why != InviteTaken) {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					claimed++
				}
			})
		}
		wait.Wait()
		if claimed != 1 {
			t.Errorf("%d have claimed one invite", claimed)
		}
	})
}
