package api

import (
	"time"

	"github.com/gpu-mode/kbgen/store"
)

// statsJSON are the numbers of all boards.
type statsJSON struct {
	Users       int              `json:"users"` // who have submitted
	Submissions int              `json:"submissions"`
	Hour        int              `json:"hour"` // submissions of the last hour
	Day         int              `json:"day"`  // submissions of the last 24 hours
	Open        int              `json:"open"` // runs that have not finished
	Boards      []boardStatsJSON `json:"boards"`
}

type boardStatsJSON struct {
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
	s, err := c.admin.Stats(c.ctx())
	return statsJSON{s.Users, s.Submissions, s.Hour, s.Day, s.Runs, mapped(s.Boards, func(b store.BoardStats) boardStatsJSON {
		return boardStatsJSON{b.Board, b.Users, b.Submissions, b.Hour, b.Day, b.Open, b.Statuses, b.Modes}
	})}, err
}

type usersJSON struct {
	Users []userJSON `json:"users"`
}

type userJSON struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Banned      bool   `json:"banned"`
	CLI         bool   `json:"cli"` // has a CLI id
	Submissions int    `json:"submissions"`
}

func users(c *call) (any, error) {
	all, err := c.admin.Users(c.ctx())
	return usersJSON{mapped(all, func(u store.User) userJSON { return userJSON(u) })}, err
}

type banRequestJSON struct {
	Banned bool `json:"banned"`
}

func banUser(c *call, in banRequestJSON) (any, error) {
	return done(c, c.admin.Ban(c.ctx(), c.PathValue("user"), in.Banned))
}

func endSessions(c *call) (any, error) {
	return done(c, c.admin.EndSessions(c.ctx(), c.PathValue("user")))
}

type hackedRequestJSON struct {
	Why string `json:"why"` // for its owner
}

func markHacked(c *call, id int64) (any, error) {
	var in hackedRequestJSON
	if err := c.json(&in); err != nil {
		return nil, err
	}
	return done(c, c.admin.MarkHacked(c.ctx(), id, in.Why))
}

type verifyRequestJSON struct {
	GPU string `json:"gpu,omitempty"` // empty: the one that it was for
}

func verifyAgain(c *call, id int64) (any, error) {
	var in verifyRequestJSON
	if err := c.json(&in); err != nil {
		return nil, err
	}
	return done(c, c.admin.Verify(c.ctx(), id, in.GPU))
}

type rejudgedJSON struct {
	Submissions int `json:"submissions"` // that are evaluated again, each GPU type counted
}

func rejudge(c *call) (any, error) {
	n, err := c.admin.Rejudge(c.ctx(), c.board())
	return rejudgedJSON{n}, err
}

func closeBoard(c *call) (any, error) {
	return done(c, c.admin.CloseBoard(c.ctx(), c.board(), time.Now()))
}

type limitListJSON struct {
	Limits []limitJSON `json:"limits"`
}

func setLimits(c *call, in limitListJSON) (any, error) {
	return done(c, c.admin.SetLimits(c.ctx(), c.board(), mapped(in.Limits, func(l limitJSON) store.Limit { return store.Limit(l) })))
}

type acceptingJSON struct {
	Accepting bool `json:"accepting"`
}

func accepting(c *call) (any, error) {
	on, err := c.admin.Accepting(c.ctx())
	return acceptingJSON{on}, err
}

func putAccepting(c *call, in acceptingJSON) (any, error) {
	return in, c.admin.SetAccepting(c.ctx(), in.Accepting)
}

type invitesJSON struct {
	Invites []inviteJSON `json:"invites"`
}

// An Invite lets the one user who uses it onto closed boards.
type inviteJSON struct {
	Code    string     `json:"code"`
	Boards  []string   `json:"boards"`
	UserID  string     `json:"user_id"` // empty until it is used
	User    string     `json:"user"`
	Created time.Time  `json:"created"`
	Used    *time.Time `json:"used"` // null until then
}

func invites(c *call) (any, error) {
	all, err := c.admin.Invites(c.ctx(), lower(c.word("board")))
	return invitesJSON{mapped(all, func(i store.Invite) inviteJSON {
		return inviteJSON{i.Code, list(i.Boards), i.UserID, i.User, i.Created.UTC(), orNil(i.Claimed.UTC())}
	})}, err
}

type newInvitesJSON struct {
	Boards []string `json:"boards"`
	Count  int      `json:"count"` // 1 to 1000
}

type inviteCodesJSON struct {
	Codes []string `json:"codes"`
}

func newInvites(c *call, in newInvitesJSON) (any, error) {
	codes, err := c.admin.NewInvites(c.ctx(), in.Boards, in.Count)
	return inviteCodesJSON{list(codes)}, err
}

func revokeInvite(c *call) (any, error) {
	return done(c, c.admin.RevokeInvite(c.ctx(), c.PathValue("code")))
}
