package web

import (
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
	a, err := s.Backend.Admin(r.viewer)
	if err != nil {
		return err
	}
	page := &adminPage{Said: said, Codes: codes}
	if page.Accepting, err = a.Accepting(r.Context()); err != nil {
		return err
	}
	for _, fill := range []func(*request, *backend.Admin, *adminPage) error{s.fillNumbers, s.fillStuck, s.fillUsers, s.fillRecent, s.fillInvites} {
		if err := fill(r, a, page); err != nil {
			return err
		}
	}
	return s.render(r, status, frame{Page: "admin", Title: "Admin", Here: "admin", Content: page})
}

func (s *site) fillNumbers(r *request, a *backend.Admin, page *adminPage) error {
	var err error
	if page.Totals, err = a.Stats(r.Context()); err != nil {
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

func (s *site) fillStuck(r *request, a *backend.Admin, page *adminPage) error {
	all, err := a.Stuck(r.Context(), stuckAfter)
	if err != nil {
		return err
	}
	if len(all) > maxStuck {
		all, page.StuckMore = all[:maxStuck], len(all)-maxStuck
	}
	page.Stuck = all
	return nil
}

func (s *site) fillUsers(r *request, a *backend.Admin, page *adminPage) error {
	users, err := a.Users(r.Context())
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

func (s *site) fillRecent(r *request, _ *backend.Admin, page *adminPage) error {
	all, err := s.Backend.Mine(r.Context(), r.viewer, store.Query{Limit: 25})
	page.Recent = newListed(all, true)
	return err
}

func (s *site) fillInvites(r *request, a *backend.Admin, page *adminPage) error {
	board := r.FormValue("invites")
	if board == "" {
		return nil
	}
	page.Board = name(board)
	var err error
	page.Invites, err = a.Invites(r.Context(), strings.ToLower(board))
	return err
}

// actAsAdmin does what a form of the page for admins says.
func (s *site) actAsAdmin(r *request) error {
	a, err := s.Backend.Admin(r.viewer)
	if err != nil {
		return err
	}
	said, codes, err := administer(r, a)
	if err != nil {
		return err
	}
	return s.showAdmin(r, http.StatusOK, said, codes)
}

func administer(r *request, a *backend.Admin) (said string, codes []string, err error) {
	ctx := r.Context()
	user, board := r.PostFormValue("user"), strings.TrimSpace(r.PostFormValue("board"))
	switch do := r.PostFormValue("do"); do {
	case "stop":
		return "No submissions are taken any more.", nil, a.SetAccepting(ctx, false)
	case "accept":
		return "Submissions are taken again.", nil, a.SetAccepting(ctx, true)
	case "ban", "unban":
		err := a.Ban(ctx, user, do == "ban")
		if do == "ban" {
			return "User " + text.Line(user, maxName) + " may not submit any more.", nil, err
		}
		return "User " + text.Line(user, maxName) + " may submit again.", nil, err
	case "end":
		_, err := a.SetBoard(ctx, board, func(b *store.Board) error { b.Deadline = r.now; return nil }, store.SetOptions{})
		return name(board) + " has ended.", nil, err
	case "invite":
		n, err := strconv.Atoi(r.PostFormValue("n"))
		if err != nil {
			return "", nil, &refusal{http.StatusBadRequest, "How many invites? Give a number."}
		}
		boards := strings.FieldsFunc(board, func(c rune) bool { return c == ',' || c == ' ' })
		codes, err := a.NewInvites(ctx, boards, n)
		return format.Count(len(codes), "invite") + " to " + text.Line(strings.Join(boards, ", "), 200) + ". They are listed below as well.", codes, err
	case "revoke":
		return "The invite is gone.", nil, a.RevokeInvite(ctx, r.PostFormValue("code"))
	}
	return "", nil, &refusal{http.StatusBadRequest, "There is no such action."}
}
