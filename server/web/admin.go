package web

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/verdict/view"
)

const (
	maxUsers = 100 // that one page lists
	maxStuck = 50

	// stuckAfter is how long a run has not finished before an admin sees it.
	stuckAfter = time.Hour
)

type adminPage struct {
	Accepting bool
	Totals    store.Stats
	Boards    []boardNumbers
	Stuck     []store.Stuck
	StuckMore int
	Query     string
	Users     []store.User
	UsersMore int
	Recent    []listed
	Board     string // whose invites are shown
	Invites   []store.Invite
	Codes     []string // just made
	Said      string
}

type boardNumbers struct {
	store.Board
	Numbers store.BoardStats
}

func (s *site) admin(r *request) error { return s.showAdmin(r, http.StatusOK, "", nil) }

func (s *site) showAdmin(r *request, status int, said string, codes []string) error {
	if !r.viewer.Admin {
		return fmt.Errorf("the page for admins: %w", backend.ErrForbidden)
	}
	page := &adminPage{Said: said, Codes: codes}
	var err error
	if page.Accepting, err = s.Backend.Accepting(r.Context()); err != nil {
		return err
	}
	for _, fill := range []func(*request, *adminPage) error{s.fillNumbers, s.fillStuck, s.fillUsers, s.fillRecent, s.fillInvites} {
		if err := fill(r, page); err != nil {
			return err
		}
	}
	return s.render(r, status, frame{Page: "admin", Title: "Admin", Here: "admin", Content: page})
}

func (s *site) fillNumbers(r *request, page *adminPage) error {
	var err error
	if page.Totals, err = s.Backend.Stats(r.Context(), r.viewer); err != nil {
		return err
	}
	boards, err := s.Backend.Boards(r.Context(), r.viewer)
	if err != nil {
		return err
	}
	numbers := map[string]store.BoardStats{}
	for _, n := range page.Totals.Boards {
		numbers[n.Board] = n
	}
	slices.SortStableFunc(boards, func(a, b store.Board) int { return byDeadline(&a, &b, r) })
	for _, b := range boards {
		page.Boards = append(page.Boards, boardNumbers{b, numbers[b.Name]})
	}
	return nil
}

// tally writes numbers by name: "3 failed, 12 succeeded".
func tally(numbers map[string]int) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(numbers)) {
		if word := view.Mode(key); numbers[key] > 0 && word != "" {
			parts = append(parts, format.Number(numbers[key])+" "+strings.ReplaceAll(word, "_", " "))
		}
	}
	return strings.Join(parts, ", ")
}

func (s *site) fillStuck(r *request, page *adminPage) error {
	all, err := s.Backend.Stuck(r.Context(), r.viewer, stuckAfter)
	if err != nil {
		return err
	}
	if len(all) > maxStuck {
		all, page.StuckMore = all[:maxStuck], len(all)-maxStuck
	}
	page.Stuck = all
	return nil
}

func (s *site) fillUsers(r *request, page *adminPage) error {
	users, err := s.Backend.Users(r.Context(), r.viewer)
	if err != nil {
		return err
	}
	page.Query = text.Line(r.URL.Query().Get("q"), maxName)
	want := strings.ToLower(page.Query)
	users = slices.DeleteFunc(users, func(u store.User) bool {
		return want != "" && u.ID != want && !strings.Contains(strings.ToLower(u.Name), want)
	})
	slices.SortStableFunc(users, func(a, b store.User) int { return b.Submissions - a.Submissions })
	if len(users) > maxUsers {
		users, page.UsersMore = users[:maxUsers], len(users)-maxUsers
	}
	page.Users = users
	return nil
}

func (s *site) fillRecent(r *request, page *adminPage) error {
	all, err := s.Backend.Mine(r.Context(), r.viewer, store.Query{Limit: 25})
	page.Recent = newListed(all, true)
	return err
}

func (s *site) fillInvites(r *request, page *adminPage) error {
	board := r.FormValue("invites")
	if board == "" {
		return nil
	}
	page.Board = name(board)
	var err error
	page.Invites, err = s.Backend.Invites(r.Context(), r.viewer, board)
	return err
}

// actAsAdmin does what a form of the page for admins says.
func (s *site) actAsAdmin(r *request) error {
	if !r.viewer.Admin {
		return fmt.Errorf("the page for admins: %w", backend.ErrForbidden)
	}
	said, codes, err := s.administer(r)
	if err != nil {
		return err
	}
	return s.showAdmin(r, http.StatusOK, said, codes)
}

func (s *site) administer(r *request) (said string, codes []string, err error) {
	ctx, v := r.Context(), r.viewer
	user, board := r.PostFormValue("user"), strings.TrimSpace(r.PostFormValue("board"))
	switch do := r.PostFormValue("do"); do {
	case "stop":
		return "No submissions are taken any more.", nil, s.Backend.SetAccepting(ctx, v, false)
	case "accept":
		return "Submissions are taken again.", nil, s.Backend.SetAccepting(ctx, v, true)
	case "ban", "unban":
		err := s.Backend.Ban(ctx, v, user, do == "ban")
		if do == "ban" {
			return "User " + text.Line(user, maxName) + " may not submit any more.", nil, err
		}
		return "User " + text.Line(user, maxName) + " may submit again.", nil, err
	case "rejudge":
		n, err := s.Backend.Rejudge(ctx, v, board)
		return format.Count(n, "submission") + " of " + name(board) + " will be judged once more.", nil, err
	case "close":
		return name(board) + " is closed.", nil, s.Backend.CloseBoard(ctx, v, board)
	case "invite":
		n, err := strconv.Atoi(r.PostFormValue("n"))
		if err != nil {
			return "", nil, &refusal{http.StatusBadRequest, "How many invites? Give a number."}
		}
		boards := strings.FieldsFunc(board, func(c rune) bool { return c == ',' || c == ' ' })
		codes, err := s.Backend.NewInvites(ctx, v, boards, n)
		return format.Count(len(codes), "invite") + " to " + text.Line(strings.Join(boards, ", "), 200) + ". They are listed below as well.", codes, err
	case "revoke":
		return "The invite is gone.", nil, s.Backend.RevokeInvite(ctx, v, r.PostFormValue("code"))
	}
	return "", nil, &refusal{http.StatusBadRequest, "There is no such action."}
}
