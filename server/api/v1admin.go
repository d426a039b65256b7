package api

import (
	"time"

	"github.com/gpu-mode/kbgen/store"
)

// Stats are the numbers of all boards.
type Stats struct {
	Users       int          `json:"users"` // who have submitted
	Submissions int          `json:"submissions"`
	Hour        int          `json:"hour"` // submissions of the last hour
	Day         int          `json:"day"`  // submissions of the last 24 hours
	Open        int          `json:"open"` // runs that have not finished
	Boards      []BoardStats `json:"boards"`
}

type BoardStats struct {
	Board       string         `json:"board"`
	Users       int            `json:"users"`
	Submissions int            `json:"submissions"`
	Hour        int            `json:"hour"`
	Day         int            `json:"day"`
	Open        int            `json:"open"`
	Statuses    map[string]int `json:"statuses"`
	Modes       map[string]int `json:"modes"`
}

func stats(c *call) (any, error) {
	s, err := c.back().Stats(c.ctx(), c.viewer())
	out := Stats{s.Users, s.Submissions, s.Hour, s.Day, s.Runs, []BoardStats{}}
	for _, b := range s.Boards {
		out.Boards = append(out.Boards, BoardStats{b.Board, b.Users, b.Submissions, b.Hour, b.Day, b.Open, b.Statuses, b.Modes})
	}
	return out, err
}

type Users struct {
	Users []User `json:"users"`
}

type User struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Banned      bool   `json:"banned"`
	CLI         bool   `json:"cli"` // has a CLI id
	Submissions int    `json:"submissions"`
}

func users(c *call) (any, error) {
	all, err := c.back().Users(c.ctx(), c.viewer())
	out := Users{[]User{}}
	for _, u := range all {
		out.Users = append(out.Users, User{u.ID, u.Name, u.Banned, u.CLI, u.Submissions})
	}
	return out, err
}

type BanRequest struct {
	Banned bool `json:"banned"`
}

func banUser(c *call) (any, error) {
	var in BanRequest
	if err := c.json(&in, true); err != nil {
		return nil, err
	}
	return done(c, c.back().Ban(c.ctx(), c.viewer(), c.PathValue("user"), in.Banned))
}

type HackedRequest struct {
	Why string `json:"why"` // for its owner
}

func markHacked(c *call) (any, error) {
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	var in HackedRequest
	if err := c.json(&in, true); err != nil {
		return nil, err
	}
	return done(c, c.back().MarkHacked(c.ctx(), c.viewer(), id, in.Why))
}

type VerifyRequest struct {
	GPU string `json:"gpu,omitempty"` // empty: the one that it was for
}

func verifyAgain(c *call) (any, error) {
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	var in VerifyRequest
	if err := c.json(&in, true); err != nil {
		return nil, err
	}
	return done(c, c.back().Verify(c.ctx(), c.viewer(), id, in.GPU))
}

type Rejudged struct {
	Submissions int `json:"submissions"` // that are evaluated again, each GPU type counted
}

func rejudge(c *call) (any, error) {
	n, err := c.back().Rejudge(c.ctx(), c.viewer(), c.board())
	return Rejudged{n}, err
}

func closeBoard(c *call) (any, error) {
	return done(c, c.back().CloseBoard(c.ctx(), c.viewer(), c.board()))
}

type LimitList struct {
	Limits []Limit `json:"limits"`
}

func setLimits(c *call) (any, error) {
	var in LimitList
	if err := c.json(&in, true); err != nil {
		return nil, err
	}
	limits := []store.Limit{}
	for _, l := range in.Limits {
		limits = append(limits, store.Limit{GPU: l.GPU, Category: l.Category, PerHour: l.PerHour})
	}
	return done(c, c.back().SetLimits(c.ctx(), c.viewer(), c.board(), limits))
}

type Accepting struct {
	Accepting bool `json:"accepting"`
}

func accepting(c *call) (any, error) {
	on, err := c.back().Accepting(c.ctx())
	return Accepting{on}, err
}

func putAccepting(c *call) (any, error) {
	var in Accepting
	if err := c.json(&in, true); err != nil {
		return nil, err
	}
	return in, c.back().SetAccepting(c.ctx(), c.viewer(), in.Accepting)
}

type Invites struct {
	Invites []Invite `json:"invites"`
}

// An Invite lets the one user who uses it onto closed boards.
type Invite struct {
	Code    string     `json:"code"`
	Boards  []string   `json:"boards"`
	UserID  string     `json:"user_id"` // empty until it is used
	User    string     `json:"user"`
	Created time.Time  `json:"created"`
	Used    *time.Time `json:"used"` // null until then
}

func invites(c *call) (any, error) {
	all, err := c.back().Invites(c.ctx(), c.viewer(), c.word("board"))
	out := Invites{[]Invite{}}
	for _, i := range all {
		one := Invite{Code: i.Code, Boards: list(i.Boards), UserID: i.UserID, User: i.User, Created: i.Created.UTC()}
		if !i.Claimed.IsZero() {
			at := i.Claimed.UTC()
			one.Used = &at
		}
		out.Invites = append(out.Invites, one)
	}
	return out, err
}

type NewInvites struct {
	Boards []string `json:"boards"`
	Count  int      `json:"count"` // 1 to 1000
}

type InviteCodes struct {
	Codes []string `json:"codes"`
}

func newInvites(c *call) (any, error) {
	var in NewInvites
	if err := c.json(&in, true); err != nil {
		return nil, err
	}
	codes, err := c.back().NewInvites(c.ctx(), c.viewer(), in.Boards, in.Count)
	return InviteCodes{list(codes)}, err
}

func revokeInvite(c *call) (any, error) {
	return done(c, c.back().RevokeInvite(c.ctx(), c.viewer(), c.PathValue("code")))
}
