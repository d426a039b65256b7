package api

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/store"
)

func lower(s string) string { return strings.ToLower(s) }

func popcornAdminRoutes() []route {
	admins := []route{
		{pattern: "POST /admin/start", about: "Take submissions.", answer: reflect.TypeFor[jobsJSON](), do: func(c *call) (any, error) { return setAccepting(c, true) }},
		{pattern: "POST /admin/stop", about: "Take no more submissions.", answer: reflect.TypeFor[jobsJSON](), do: func(c *call) (any, error) { return setAccepting(c, false) }},
		{pattern: "GET /admin/stats", about: "Count submissions.", query: []param{{"last_day_only", "boolean", "of the last 24 hours"}, {"leaderboard_name", "string", "of this board alone"}}, answer: reflect.TypeFor[adminStatsJSON](), do: adminStats},
		{pattern: "GET /admin/submissions/{id}", about: "Read anybody's submission.", answer: reflect.TypeFor[adminSubmissionJSON](), do: withSubmission(adminSubmission)},
		{pattern: "DELETE /admin/submissions/{id}", about: "Delete anybody's submission.", answer: reflect.TypeFor[deletedJSON](), do: withID(deleteSubmission)},
		{pattern: "DELETE /admin/leaderboards/{board}", about: "Delete a board.", query: []param{{"force", "boolean", "also one that has submissions"}}, answer: reflect.TypeFor[boardDeletedJSON](), do: adminDeleteBoard},
		{pattern: "GET /admin/leaderboards/{board}/submissions", about: "List the ids of a board's submissions, newest first.", query: []param{{"limit", "integer", "1 to 1000; 100"}, {"offset", "integer", "0"}}, answer: reflect.TypeFor[boardSubmissionsJSON](), do: adminBoardSubmissions},
		{pattern: "POST /admin/leaderboards/{board}/visibility", about: "Make a board public or closed.", body: reflect.TypeFor[visibilityJSON](), answer: reflect.TypeFor[visibilitySetJSON](), do: withBody(adminVisibility)},
		{pattern: "GET /admin/leaderboards/{board}/rate-limits", about: "List a board's limits.", answer: reflect.TypeFor[rateLimitsJSON](), do: adminRateLimits},
		{pattern: "PUT /admin/leaderboards/{board}/rate-limits", about: "Set one of a board's limits.", body: reflect.TypeFor[rateLimitJSON](), answer: reflect.TypeFor[rateLimitSetJSON](), do: adminSetRateLimit},
		{pattern: "DELETE /admin/leaderboards/{board}/rate-limits/{category}", about: "Remove one of a board's limits.", answer: reflect.TypeFor[rateLimitGoneJSON](), do: adminDeleteRateLimit},
		{pattern: "POST /admin/invites", about: "Make invites to closed boards.", body: reflect.TypeFor[inviteRequestJSON](), answer: reflect.TypeFor[invitesMadeJSON](), do: withBody(adminMakeInvites)},
		{pattern: "GET /admin/leaderboards/{board}/invites", about: "List the invites to a board.", answer: reflect.TypeFor[boardInvitesJSON](), do: adminInvites},
		{pattern: "DELETE /admin/invites/{code}", about: "Take an invite back.", answer: reflect.TypeFor[inviteRevokedJSON](), do: adminRevoke},
		{pattern: "POST /admin/ban/{user}", about: "Stop a user from submitting.", answer: reflect.TypeFor[bannedJSON](), do: func(c *call) (any, error) { return ban(c, true) }},
		{pattern: "DELETE /admin/ban/{user}", about: "Let a user submit again.", answer: reflect.TypeFor[bannedJSON](), do: func(c *call) (any, error) { return ban(c, false) }},
	}
	// What Kernelbot does with its own disk or with others' servers is done here with
	// kbserve, by who runs it.
	for pattern, instead := range map[string]string{"POST /admin/leaderboards": "kbserve board create", "POST /admin/update-problems": "kbserve board sync", "POST /admin/export-hf": "kbserve db export"} {
		admins = append(admins, route{pattern: pattern, about: "Not done here: " + instead + ".", status: http.StatusNotImplemented, answer: reflect.TypeFor[httpx.Problem](),
			do: func(*call) (any, error) {
				return nil, &refusal{http.StatusNotImplemented, "this is done on the server: " + instead}
			}})
	}
	slices.SortStableFunc(admins, func(a, b route) int { return strings.Compare(a.pattern, b.pattern) })
	return admins
}

type jobsJSON struct {
	Status      string `json:"status"` // ok
	AcceptsJobs bool   `json:"accepts_jobs"`
}

func setAccepting(c *call, on bool) (any, error) {
	return jobsJSON{"ok", on}, c.admin.SetAccepting(c.ctx(), on)
}

type adminStatsJSON struct {
	Status string         `json:"status"` // ok
	Stats  map[string]int `json:"stats"`
}

func adminStats(c *call) (any, error) {
	day, err := c.yes("last_day_only")
	if err != nil {
		return nil, err
	}
	s, err := c.admin.Stats(c.ctx())
	if err != nil {
		return nil, err
	}
	board := lower(c.word("leaderboard_name"))
	stats := map[string]int{"num_submissions": 0}
	for _, b := range s.Boards {
		if board != "" && b.Board != board {
			continue
		}
		if day {
			stats["num_submissions"] += b.Day
			continue
		}
		stats["num_submissions"] += b.Submissions
		stats["runs_waiting_or_running"] += b.Open
		for status, n := range b.Statuses {
			status = cmp.Or(status, "unknown")
			stats["status_"+status] += n
		}
		for mode, n := range b.Modes {
			if mode != "" {
				stats["mode_"+mode] += n
			}
		}
	}
	if board == "" && !day {
		stats["num_users"] = s.Users
	}
	return adminStatsJSON{"ok", stats}, nil
}

// An AdminSubmission is a submission as Kernelbot shows it to admins.
type adminSubmissionJSON struct {
	Status     string                 `json:"status"` // ok
	Submission adminSubmissionRowJSON `json:"submission"`
}

type adminSubmissionRowJSON struct {
	SubmissionID int64 `json:"submission_id"`
	submissionRowJSON
	JobStatus    *string `json:"job_status"`
	JobError     *string `json:"job_error"`
	JobHeartbeat *string `json:"job_last_heartbeat"`
}

func adminSubmission(_ *call, s *backend.Submission) (any, error) {
	job := jobOf(s)
	return adminSubmissionJSON{"ok", adminSubmissionRowJSON{s.ID, rowOf(s), job.Status, job.Error, job.LastHeartbeat}}, nil
}

type boardDeletedJSON struct {
	Status      string `json:"status"` // ok
	Leaderboard string `json:"leaderboard"`
	Force       bool   `json:"force"`
}

func adminDeleteBoard(c *call) (any, error) {
	force, err := c.yes("force")
	if err != nil {
		return nil, err
	}
	_, err = c.admin.DeleteBoard(c.ctx(), c.board(), force)
	return boardDeletedJSON{"ok", c.board(), force}, err
}

type boardSubmissionsJSON struct {
	Status        string  `json:"status"` // ok
	Leaderboard   string  `json:"leaderboard"`
	Limit         int     `json:"limit"`
	Offset        int     `json:"offset"`
	SubmissionIDs []int64 `json:"submission_ids"`
}

func adminBoardSubmissions(c *call) (any, error) {
	limit, offset, err := c.page(100, 1, 1000)
	if err != nil {
		return nil, err
	}
	if _, err := c.back().Board(c.ctx(), c.viewer(), c.board()); err != nil {
		return nil, err
	}
	all, err := c.back().Mine(c.ctx(), c.viewer(), store.Query{Board: c.board(), Limit: limit, Offset: offset})
	return boardSubmissionsJSON{"ok", c.board(), limit, offset, mapped(all, func(l store.Listed) int64 { return l.ID })}, err
}

type visibilityJSON struct {
	Visibility string `json:"visibility"` // public or closed
}

type visibilitySetJSON struct {
	Status      string `json:"status"` // ok
	Leaderboard string `json:"leaderboard"`
	Visibility  string `json:"visibility"`
}

func adminVisibility(c *call, in visibilityJSON) (any, error) {
	_, err := editBoard(c, boardEditJSON{Visibility: &in.Visibility})
	return visibilitySetJSON{"ok", c.board(), in.Visibility}, err
}

// A RateLimit bounds one user's submissions to a board in an hour.
type rateLimitJSON struct {
	ModeCategory          string `json:"mode_category"` // test, which is every mode but leaderboard, or leaderboard
	MaxSubmissionsPerHour int    `json:"max_submissions_per_hour"`
}

type rateLimitsJSON struct {
	Status      string          `json:"status"` // ok
	Leaderboard string          `json:"leaderboard"`
	RateLimits  []rateLimitJSON `json:"rate_limits"`
}

type rateLimitSetJSON struct {
	Status    string        `json:"status"` // ok
	RateLimit rateLimitJSON `json:"rate_limit"`
}

type rateLimitGoneJSON struct {
	Status       string `json:"status"` // ok
	Leaderboard  string `json:"leaderboard"`
	ModeCategory string `json:"mode_category"`
}

func adminRateLimits(c *call) (any, error) {
	limits, err := c.back().Limits(c.ctx(), c.viewer(), c.board())
	all := []rateLimitJSON{}
	for _, l := range limits {
		if l.GPU == "" {
			all = append(all, rateLimitJSON{l.Category, l.PerHour})
		}
	}
	return rateLimitsJSON{"ok", c.board(), all}, err
}

func category(name string) error {
	if name != schema.ModeTest && name != schema.ModeLeaderboard {
		return &refusal{http.StatusBadRequest, "mode_category: want test or leaderboard"}
	}
	return nil
}

func adminSetRateLimit(c *call) (any, error) {
	in := rateLimitJSON{MaxSubmissionsPerHour: -1}
	if err := c.json(&in); err != nil {
		return nil, err
	}
	if err := category(in.ModeCategory); err != nil {
		return nil, err
	}
	if in.MaxSubmissionsPerHour < 0 || in.MaxSubmissionsPerHour > 1e6 {
		return nil, &refusal{http.StatusBadRequest, "max_submissions_per_hour: want 0 to 1000000"}
	}
	limit := store.Limit{Category: in.ModeCategory, PerHour: in.MaxSubmissionsPerHour}
	return rateLimitSetJSON{"ok", in}, changeLimit(c, in.ModeCategory, &limit)
}

func adminDeleteRateLimit(c *call) (any, error) {
	name := c.PathValue("category")
	if err := category(name); err != nil {
		return nil, err
	}
	return rateLimitGoneJSON{"ok", c.board(), name}, changeLimit(c, name, nil)
}

// changeLimit puts a limit of the whole board in the place of the one there is.
func changeLimit(c *call, category string, limit *store.Limit) error {
	_, err := c.admin.SetBoard(c.ctx(), c.board(), func(b *store.Board) error {
		b.Limits = list(slices.DeleteFunc(b.Limits, func(l store.Limit) bool { return l.GPU == "" && l.Category == category }))
		if limit != nil {
			b.Limits = append(b.Limits, *limit)
		}
		return nil
	}, store.SetOptions{})
	return err
}

// An InviteRequest asks for invites to one board or several.
type inviteRequestJSON struct {
	Leaderboards []string `json:"leaderboards,omitempty"`
	Leaderboard  string   `json:"leaderboard,omitempty"`
	Count        int      `json:"count"`
}

type invitesMadeJSON struct {
	Status       string   `json:"status"` // ok
	Leaderboards []string `json:"leaderboards"`
	Codes        []string `json:"codes"`
}

func adminMakeInvites(c *call, in inviteRequestJSON) (any, error) {
	if len(in.Leaderboards) == 0 && in.Leaderboard != "" {
		in.Leaderboards = []string{in.Leaderboard}
	}
	codes, err := c.admin.NewInvites(c.ctx(), in.Leaderboards, in.Count)
	return invitesMadeJSON{"ok", list(in.Leaderboards), list(codes)}, err
}

type boardInvitesJSON struct {
	Status      string          `json:"status"` // ok
	Leaderboard string          `json:"leaderboard"`
	Invites     []inviteRowJSON `json:"invites"`
}

type inviteRowJSON struct {
	Code      string  `json:"code"`
	UserID    *string `json:"user_id"`
	UserName  *string `json:"user_name"`
	CreatedAt string  `json:"created_at"`
	ClaimedAt *string `json:"claimed_at"`
}

func adminInvites(c *call) (any, error) {
	invites, err := c.admin.Invites(c.ctx(), c.board())
	return boardInvitesJSON{"ok", c.board(), mapped(invites, func(i store.Invite) inviteRowJSON {
		return inviteRowJSON{i.Code, orNil(i.UserID), orNil(i.User), stamp(i.Created), stampOrNil(i.Claimed)}
	})}, err
}

type inviteRevokedJSON struct {
	Status string `json:"status"` // ok
	Code   string `json:"code"`
}

func adminRevoke(c *call) (any, error) {
	code := c.PathValue("code")
	return inviteRevokedJSON{"ok", code}, c.admin.RevokeInvite(c.ctx(), code)
}

type bannedJSON struct {
	Status string `json:"status"` // ok
	UserID string `json:"user_id"`
	Banned bool   `json:"banned"`
}

func ban(c *call, banned bool) (any, error) {
	id := c.PathValue("user")
	return bannedJSON{"ok", id, banned}, c.admin.Ban(c.ctx(), id, banned)
}
