package api

import (
	"errors"
	"testing/fstest"
	"time"

	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
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

func unmarkHacked(c *call, id int64) (any, error) {
	return done(c, c.admin.UnmarkHacked(c.ctx(), id))
}

func endSessions(c *call) (any, error) {
	return done(c, c.admin.EndSessions(c.ctx(), c.PathValue("user")))
}

type decisionRequestJSON struct {
	Decision string `json:"decision"`         // accept or reject
	Reason   string `json:"reason,omitempty"` // of a rejection, for the submission's owner
}

func decide(c *call, id int64) (any, error) {
	var in decisionRequestJSON
	if err := c.json(&in); err != nil {
		return nil, err
	}
	if in.Decision != "accept" && in.Decision != "reject" {
		return nil, store.NewRefusal(store.Invalid, "decision: got %s, want accept or reject", text.Quote(text.Shorten(in.Decision, 40)))
	}
	return done(c, c.admin.Decide(c.ctx(), id, in.Decision == "accept", in.Reason))
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

// A RejudgeRequest selects submissions to evaluate once more; what is left out
// selects all.
type rejudgeRequestJSON struct {
	GPU    string     `json:"gpu,omitempty"`
	UserID string     `json:"user_id,omitempty"`
	Since  *time.Time `json:"since,omitempty"`  // of arrival
	Until  *time.Time `json:"until,omitempty"`  // which itself does not count
	Status string     `json:"status,omitempty"` // succeeded, failed or timed_out; empty: only what ranks
	All    bool       `json:"all,omitempty"`    // ranked or not
	DryRun bool       `json:"dry_run,omitempty"`
	Reason string     `json:"reason,omitempty"` // for the board's history
}

type rejudgedJSON struct {
	Submissions int      `json:"submissions"` // that are evaluated again, each GPU type counted
	Runs        int      `json:"runs"`
	GPUMinutes  *float64 `json:"gpu_minutes"` // estimated from how long such runs took lately; null: unknown
}

func rejudge(c *call) (any, error) {
	var in rejudgeRequestJSON
	if c.ContentLength != 0 { // without a body: what ranks
		if err := c.json(&in); err != nil {
			return nil, err
		}
	}
	which := store.Rejudging{GPU: in.GPU, UserID: in.UserID, Status: in.Status, All: in.All, DryRun: in.DryRun, By: store.Author{Reason: in.Reason}}
	if in.Since != nil {
		which.Since = *in.Since
	}
	if in.Until != nil {
		which.Until = *in.Until
	}
	planned, err := c.admin.Rejudge(c.ctx(), c.board(), which)
	return rejudgedJSON{planned.Submissions, planned.Runs, orNil(planned.Took.Minutes())}, err
}

func rejudgeReport(c *call) (any, error) {
	return c.admin.RejudgeReport(c.ctx(), c.board())
}

// A BoardEdit is what to change of a board; what is left out stays.
type boardEditJSON struct {
	Deadline    *time.Time   `json:"deadline,omitempty"`
	JudgeLate   bool         `json:"judge_late,omitempty"` // the new deadline also decides which existing submissions are late
	Visibility  *string      `json:"visibility,omitempty"` // public or closed
	ShowCode    *string      `json:"show_code,omitempty"`  // never or after
	Reuse       *bool        `json:"reuse,omitempty"`
	GPUs        []string     `json:"gpus,omitempty"`
	Limits      *[]limitJSON `json:"limits,omitempty"` // all there are then
	Harness     *string      `json:"harness,omitempty"`
	Sandbox     *string      `json:"sandbox,omitempty"`
	ClearTiming *bool        `json:"clear_timing,omitempty"`
	Ties        *bool        `json:"ties,omitempty"`
	Reason      string       `json:"reason,omitempty"` // for the board's history
}

// A BoardRequest makes a board, or gives one another task. What is left out stays as
// it is.
type boardRequestJSON struct {
	Deadline   *time.Time        `json:"deadline,omitempty"`   // a new board needs one
	GPUs       []string          `json:"gpus,omitempty"`       // empty: the task's
	Visibility string            `json:"visibility,omitempty"` // public or closed
	Files      map[string]string `json:"files"`                // the task's directory: task.yml and what it names
	Force      bool              `json:"force,omitempty"`      // also what makes earlier results incomparable
	Reason     string            `json:"reason,omitempty"`     // for the board's history
}

func putBoard(c *call, in boardRequestJSON) (any, error) {
	files := fstest.MapFS{}
	for name, content := range in.Files {
		files[name] = &fstest.MapFile{Data: []byte(content)}
	}
	t, err := task.Load(files, ".")
	if err != nil {
		return nil, store.NewRefusal(store.Invalid, "files: %s", text.Line(err.Error(), 1000))
	}
	b := store.Board{Name: c.board(), Description: t.Description, GPUs: in.GPUs, Task: t, Visibility: in.Visibility}
	if len(b.GPUs) == 0 {
		b.GPUs = t.GPUs
	}
	if err := c.admin.Serves(b.GPUs); err != nil {
		return nil, err
	}
	switch there, err := c.back().Board(c.ctx(), c.viewer(), b.Name); {
	case in.Deadline != nil:
		b.Deadline = *in.Deadline
	case errors.Is(err, store.ErrNotFound):
		return nil, store.NewRefusal(store.Invalid, "deadline: want one for a new board")
	case err != nil:
		return nil, err
	default:
		b.Deadline = there.Deadline
	}
	changes, err := c.admin.SaveBoards(c.ctx(), []store.Board{b}, store.SaveOptions{Force: in.Force, By: store.Author{Reason: in.Reason}})
	if err != nil {
		return nil, err
	}
	return boardSavedJSON{changes[0].What, editsOf(changes[0].Parts)}, nil
}

type boardSavedJSON struct {
	What    string     `json:"what"` // created, changed or unchanged
	Changes []editJSON `json:"changes"`
}

func editsOf(parts []store.Edit) []editJSON {
	return mapped(parts, func(e store.Edit) editJSON { return editJSON(e) })
}

func removeBoard(c *call) (any, error) {
	force, err := c.yes("force")
	if err != nil {
		return nil, err
	}
	_, err = c.admin.DeleteBoard(c.ctx(), c.board(), force)
	return done(c, err)
}

type boardEditedJSON struct {
	Changes []editJSON `json:"changes"`
}

// An Edit is one setting that was changed; old and new are empty for long texts.
type editJSON struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

func editBoard(c *call, in boardEditJSON) (any, error) {
	change, err := c.admin.SetBoard(c.ctx(), c.board(), func(b *store.Board) error {
		set(&b.Deadline, in.Deadline)
		set(&b.Visibility, in.Visibility)
		set(&b.ShowCode, in.ShowCode)
		set(&b.Reuse, in.Reuse)
		set(&b.Policy.Harness, in.Harness)
		set(&b.Policy.Sandbox, in.Sandbox)
		set(&b.Policy.ClearTiming, in.ClearTiming)
		set(&b.Policy.Ties, in.Ties)
		if in.GPUs != nil {
			b.GPUs = in.GPUs
		}
		if in.Limits != nil {
			b.Limits = mapped(*in.Limits, func(l limitJSON) store.Limit { return store.Limit(l) })
		}
		return nil
	}, store.SetOptions{By: store.Author{Reason: in.Reason}, JudgeLate: in.JudgeLate})
	return boardEditedJSON{editsOf(change.Parts)}, err
}

// set replaces a value if the request has one.
func set[T any](value *T, wanted *T) {
	if wanted != nil {
		*value = *wanted
	}
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
