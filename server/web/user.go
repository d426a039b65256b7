package web

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
)

// ownSize is how many submissions a user's own page lists at a time.
const ownSize = 50

type userPage struct {
	Name, Path  string
	Self, Admin bool
	ID          string
	Ranks       []backend.Rank
	List        bool // whether the submissions are shown
	Submissions []listed
	Board       string // that the list is of; "" for all
	Newest      string // path
	Older       string // path; "" without
	LogOut      string
	CLIID       string // just made; told once
	Said        string // what a form has done
	Server      string
}

func (s *site) user(r *request) error { return s.showUser(r, "", "") }

func (s *site) showUser(r *request, cliID, said string) error {
	ctx := r.Context()
	id := r.PathValue("id")
	profile, err := s.Backend.Profile(ctx, r.viewer, id)
	if err != nil {
		return err
	}
	page := userPage{
		Name: name(profile.Name), Path: userPath(id), ID: text.Line(id, maxName), Self: r.viewer.ID == id, Admin: r.viewer.Admin,
		Ranks: profile.Ranks, LogOut: logOutPath, CLIID: cliID, Said: said, Server: s.PublicURL,
	}
	if page.List = page.Self || r.viewer.Admin; page.List {
		if err := s.fillList(r, &page, id); err != nil {
			return err
		}
	}
	title := page.Name
	here := ""
	if page.Self {
		here = "self"
	}
	return s.render(r, http.StatusOK, frame{Page: "user", Title: title, Here: here, Content: page})
}

func (s *site) fillList(r *request, page *userPage, id string) error {
	q := store.Query{UserID: id, Board: r.URL.Query().Get("board"), Limit: ownSize + 1}
	_, _ = fmt.Sscan(r.URL.Query().Get("before"), &q.Before) // what is no number is the newest
	q.Before = max(q.Before, 0)
	page.Board = text.Line(q.Board, maxName)
	all, err := s.Backend.Mine(r.Context(), r.viewer, q)
	if err != nil {
		return err
	}
	board := ""
	if page.Board != "" {
		board = "board=" + url.QueryEscape(q.Board) + "&"
	}
	if len(all) > ownSize {
		all = all[:ownSize]
		page.Older = fmt.Sprintf("%s?%sbefore=%d#submissions", page.Path, board, all[ownSize-1].ID)
	}
	if q.Before > 0 {
		page.Newest = page.Path + strings.TrimSuffix("?"+board, "&")
		page.Newest = strings.TrimSuffix(page.Newest, "?") + "#submissions"
	}
	page.Submissions = newListed(all, false)
	return nil
}

// actOnSelf does what a form of the viewer's own page says.
func (s *site) actOnSelf(r *request) error {
	if r.viewer.ID == "" || r.PathValue("id") != r.viewer.ID {
		return backend.ErrForbidden
	}
	switch r.PostFormValue("do") {
	case "cli":
		id, err := s.Backend.NewCLIID(r.Context(), r.viewer)
		if err != nil {
			return err
		}
		return s.showUser(r, id, "")
	case "logout":
		if err := s.Backend.EndSessions(r.Context(), r.viewer); err != nil {
			return err
		}
		return r.see("/")
	case "join":
		boards, err := s.Backend.Join(r.Context(), r.viewer, strings.TrimSpace(r.PostFormValue("code")))
		if err != nil {
			return err
		}
		if len(boards) == 1 {
			return r.see(boardPath(boards[0], ""))
		}
		return s.showUser(r, "", "You may now see "+strings.Join(boards, ", ")+".")
	}
	return s.nothing(r)
}

type loginPage struct {
	Providers []provider
	Known     bool
}

type provider struct{ Name, Path string }

// providerNames are providers as they write themselves.
var providerNames = map[string]string{"github": "GitHub", "discord": "Discord"}

func (s *site) logIn(r *request) error {
	next := r.FormValue("next")
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") {
		next = "/"
	}
	page := loginPage{Known: r.viewer.Known()}
	for _, key := range s.Identity.Providers() {
		p := provider{providerNames[key], logInPath + "?" + url.Values{"provider": {key}, "next": {next}}.Encode()}
		p.Name = cmp.Or(p.Name, name(key))
		page.Providers = append(page.Providers, p)
	}
	return s.render(r, http.StatusOK, frame{Page: "login", Title: "Log in", Here: "login", Content: page})
}
