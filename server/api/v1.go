package api

import (
	_ "embed"
	"net/http"
	"reflect"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// openAPI describes every route. A test makes it from the routes and their types.
//
//go:embed openapi.json
var openAPI []byte

func otherRoutes() []route {
	return []route{
		{pattern: "GET /api/v1/queue", about: "What runs and what waits, by GPU type.", answer: reflect.TypeFor[queueJSON](), do: queue},
		{pattern: "GET /api/v1/me", about: "Who you are here.", answer: reflect.TypeFor[Me](), do: me},
		{pattern: "POST /api/v1/join", about: "Use an invite to closed boards.", needs: user, body: reflect.TypeFor[joinRequestJSON](), answer: reflect.TypeFor[boardNamesJSON](), do: withBody(joinBoards)},
		{pattern: "GET /api/v1/openapi.json", about: "This description.", media: "application/json", do: func(c *call) (any, error) {
			c.header("Content-Type", "application/json")
			c.header("Cache-Control", "public, max-age=300")
			c.w.Write(openAPI)
			return nil, nil
		}},
	}
}

// queueJSON is what runs and what waits.
type queueJSON struct {
	GPUs []gpuLineJSON `json:"gpus"`
}

// A GPULine is the line of one GPU type.
type gpuLineJSON struct {
	GPU            string          `json:"gpu"`
	Queue          string          `json:"queue"`           // Buildkite's; empty: the GPU type is not known to it
	Off            string          `json:"off"`             // why nothing is sent there; empty: something is
	Agents         *int            `json:"agents"`          // machines that are connected and not paused; null: not known
	Busy           *int            `json:"busy"`            // those of them with a job
	Paused         *int            `json:"paused"`          // machines that take nothing
	Waiting        int             `json:"waiting"`         // runs of this competition
	Running        int             `json:"running"`         // runs of this competition
	TypicalSeconds *float64        `json:"typical_seconds"` // what a run took lately, in the middle; null: not known
	Runs           []queuedRunJSON `json:"runs"`            // those that run, then those that wait in their order; of boards that you may see
}

// A QueuedRun is one run in a line.
type queuedRunJSON struct {
	SubmissionID int64     `json:"submission_id"`
	UserID       string    `json:"user_id"`
	Board        string    `json:"board"`
	Mode         string    `json:"mode"`
	Secret       bool      `json:"secret"`
	Running      bool      `json:"running"`
	Since        time.Time `json:"since"` // it was accepted, or began
}

func queue(c *call) (any, error) {
	lines, err := c.back().Line(c.ctx(), c.viewer())
	if err != nil {
		return nil, err
	}
	q := queueJSON{GPUs: []gpuLineJSON{}}
	for _, l := range lines {
		g := gpuLineJSON{GPU: l.GPU, Queue: l.Queue, Off: l.Off, Waiting: l.Waiting, Running: l.Running, TypicalSeconds: seconds(l.Typical)}
		if l.Known {
			g.Agents, g.Busy, g.Paused = &l.Agents, &l.Busy, &l.Paused
		}
		g.Runs = mapped(l.Runs, func(r backend.QueuedRun) queuedRunJSON {
			return queuedRunJSON{r.Submission, r.UserID, r.Board, r.Mode, r.Secret, r.Running, r.Since.UTC()}
		})
		q.GPUs = append(q.GPUs, g)
	}
	return q, nil
}

// seconds is a time, null when it is not above zero.
func seconds(d time.Duration) *float64 { return orNil(max(d, 0).Seconds()) }

// Me is who asks.
type Me struct {
	ID    string `json:"id"` // empty: nobody, or an admin by token
	Name  string `json:"name"`
	Admin bool   `json:"admin"`
}

func me(c *call) (any, error) { return Me{c.who.ID, c.who.Name, c.who.Admin}, nil }

type boardNamesJSON struct {
	Boards []string `json:"boards"`
}

func joinBoards(c *call, in joinRequestJSON) (any, error) {
	boards, err := join(c, in)
	return boardNamesJSON{list(boards)}, err
}

type aboutJSON struct {
	Text string `json:"text"` // Markdown; empty: none
}

func about(c *call) (any, error) {
	text, err := c.back().About(c.ctx())
	return aboutJSON{text}, err
}

func putAbout(c *call, in aboutJSON) (any, error) { return in, c.admin.SetAbout(c.ctx(), in.Text) }

func boardRoutes() []route {
	page := []param{{"gpu", "string", "the GPU type"}, {"limit", "integer", "1 to 1000; 100"}, {"offset", "integer", "0"}}
	return []route{
		{pattern: "GET /api/v1/about", about: "The organizer's text about the competition.", answer: reflect.TypeFor[aboutJSON](), do: about},
		{pattern: "GET /api/v1/boards", about: "List the boards that you may see.", answer: reflect.TypeFor[boardsJSON](), do: boards},
		{pattern: "GET /api/v1/boards/{board}", about: "Read a board: its task, templates and limits.", answer: reflect.TypeFor[boardDetailJSON](), do: board},
		{pattern: "GET /api/v1/boards/{board}/ranking", about: "The ranking on a GPU type.", query: page, answer: reflect.TypeFor[rankingJSON](), do: boardRanking},
		{pattern: "GET /api/v1/boards/{board}/history", about: "How the best score on a GPU type fell over time; with user, that user's.", query: []param{{"gpu", "string", "the GPU type"}, {"user", "string", "a user's id"}}, answer: reflect.TypeFor[historyJSON](), do: boardHistory},
		{pattern: "GET /api/v1/boards/{board}/changes", about: "How the board's settings were changed, the latest first.", answer: reflect.TypeFor[boardChangesJSON](), do: boardChanges},
	}
}

type boardsJSON struct {
	Boards []boardJSON `json:"boards"`
}

// A Board is one leaderboard.
type boardJSON struct {
	ID          int64      `json:"id"`
	Name        string     `json:"name"`
	Deadline    time.Time  `json:"deadline"`
	Open        bool       `json:"open"` // the deadline is not over
	Description string     `json:"description"`
	GPUs        []string   `json:"gpus"`
	Visibility  string     `json:"visibility"`  // public or closed
	ShowCode    string     `json:"show_code"`   // when others see code: never, or after the deadline
	Policy      policyJSON `json:"policy"`      // what a submission that ranks needs
	Submissions int        `json:"submissions"` // of all users
	Ranked      int        `json:"ranked"`      // places on all GPU types
}

// A Policy is what a board requires beyond Kernelbot's rule.
type policyJSON struct {
	Harness     string `json:"harness"`      // isolated, or proved: isolated on a GPU with a proof; empty: any
	Sandbox     string `json:"sandbox"`      // the least level; empty: any
	ClearTiming bool   `json:"clear_timing"` // no timing that may not be the submission's own doing
	Ties        bool   `json:"ties"`         // overlapping intervals share a rank
}

// A BoardDetail is a board with what one needs to submit to it.
type boardDetailJSON struct {
	boardJSON
	Lang       string         `json:"lang"`
	RankingBy  string         `json:"ranking_by"`
	Templates  []templateJSON `json:"templates"`
	Tests      []string       `json:"tests"`      // the public cases
	Benchmarks []string       `json:"benchmarks"` // the public cases
	Limits     []limitJSON    `json:"limits"`
}

type templateJSON struct {
	Language string `json:"language"`
	Text     string `json:"text"`
}

// A Limit bounds one user's submissions in an hour.
type limitJSON struct {
	GPU      string `json:"gpu"`      // empty: of the whole board
	Category string `json:"category"` // test, which is every mode but leaderboard, or leaderboard
	PerHour  int    `json:"per_hour"` // 0 closes the category
}

func boardOf(b store.Board) boardJSON {
	out := boardJSON{ID: b.ID, Name: b.Name, Deadline: b.Deadline.UTC(), Open: time.Now().Before(b.Deadline), Description: b.Description, GPUs: list(b.GPUs), Visibility: b.Visibility, ShowCode: b.ShowCode, Submissions: b.Submissions, Ranked: b.Ranked}
	if p := b.Policy; p != nil {
		out.Policy = policyJSON{p.Harness, p.Sandbox, p.ClearTiming, p.Ties}
	}
	return out
}

func boards(c *call) (any, error) {
	all, err := c.back().Boards(c.ctx(), c.viewer())
	return boardsJSON{mapped(all, boardOf)}, err
}

func board(c *call) (any, error) {
	b, err := c.back().Board(c.ctx(), c.viewer(), c.board())
	if err != nil {
		return nil, err
	}
	limits, err := c.back().Limits(c.ctx(), c.viewer(), c.board())
	if err != nil {
		return nil, err
	}
	t := b.Task
	return boardDetailJSON{boardJSON: boardOf(*b), Lang: t.Lang, RankingBy: t.RankingBy,
		Templates: mapped(t.Templates, func(t task.Template) templateJSON { return templateJSON{t.Language, t.Text} }),
		Tests:     mapped(t.Tests, schema.Case.Text), Benchmarks: mapped(t.Benchmarks, schema.Case.Text),
		Limits: mapped(limits, func(l store.Limit) limitJSON { return limitJSON(l) })}, nil
}

// A Ranking is one page of a board on a GPU type.
type rankingJSON struct {
	Entries []entryJSON `json:"entries"`
	Total   int         `json:"total"`
}

type entryJSON struct {
	Rank         int       `json:"rank"`
	Tied         bool      `json:"tied"`  // shares its rank
	Score        float64   `json:"score"` // seconds
	Low          *float64  `json:"low"`   // 95 % interval, seconds; null: none
	High         *float64  `json:"high"`
	SubmissionID int64     `json:"submission_id"`
	FileName     string    `json:"file_name"`
	Time         time.Time `json:"time"`
	UserID       string    `json:"user_id"`
	User         string    `json:"user"`
}

func boardRanking(c *call) (any, error) {
	limit, offset, err := c.page(100, 1, 1000)
	if err != nil {
		return nil, err
	}
	entries, total, err := c.back().Ranking(c.ctx(), c.viewer(), c.board(), c.word("gpu"), limit, offset)
	return rankingJSON{mapped(entries, func(e ranking.Entry) entryJSON {
		return entryJSON{e.Rank, e.Tied, e.Score, e.Low, e.High, e.SubmissionID, e.FileName, e.Time.UTC(), e.UserID, e.User}
	}), total}, err
}

type historyJSON struct {
	Steps []stepJSON `json:"steps"` // oldest first
}

// A Step is one improvement.
type stepJSON struct {
	Time         time.Time `json:"time"`
	Score        float64   `json:"score"` // seconds
	UserID       string    `json:"user_id"`
	User         string    `json:"user"`
	SubmissionID int64     `json:"submission_id"`
}

func boardHistory(c *call) (any, error) {
	steps, err := c.back().History(c.ctx(), c.viewer(), c.board(), c.word("gpu"), c.word("user"))
	return historyJSON{mapped(steps, func(s store.Step) stepJSON { return stepJSON{s.Time.UTC(), s.Score, s.UserID, s.User, s.SubmissionID} })}, err
}

type boardChangesJSON struct {
	Changes []boardChangeJSON `json:"changes"`
}

type boardChangeJSON struct {
	Time   time.Time `json:"time"`
	Author string    `json:"author"`
	Reason string    `json:"reason"`
	editJSON
}

func boardChanges(c *call) (any, error) {
	all, err := c.back().BoardChanges(c.ctx(), c.viewer(), c.board())
	return boardChangesJSON{mapped(all, func(b store.BoardChange) boardChangeJSON {
		return boardChangeJSON{b.Time.UTC(), b.Author.Name, b.Reason, editJSON(b.Edit)}
	})}, err
}

func adminRoutes() []route {
	return []route{
		{pattern: "GET /api/v1/admin/stats", about: "Count submissions.", answer: reflect.TypeFor[statsJSON](), do: stats},
		{pattern: "GET /api/v1/admin/users", about: "List who is known.", answer: reflect.TypeFor[usersJSON](), do: users},
		{pattern: "PUT /api/v1/admin/users/{user}/banned", about: "Stop a user from submitting, or let them again.", body: reflect.TypeFor[banRequestJSON](), status: http.StatusNoContent, do: withBody(banUser)},
		{pattern: "DELETE /api/v1/admin/users/{user}/sessions", about: "Log a user out everywhere: end all sessions and log-in links. The CLI id stays valid.", status: http.StatusNoContent, do: endSessions},
		{pattern: "POST /api/v1/admin/submissions/{id}/decision", about: "Accept or reject a submission that waits for the organizers' check.", body: reflect.TypeFor[decisionRequestJSON](), status: http.StatusNoContent, do: withID(decide)},
		{pattern: "POST /api/v1/admin/submissions/{id}/hacked", about: "Take a submission out of the ranking, with the reason.", body: reflect.TypeFor[hackedRequestJSON](), status: http.StatusNoContent, do: withID(markHacked)},
		{pattern: "DELETE /api/v1/admin/submissions/{id}/hacked", about: "Undo that: the submission counts as its runs say.", status: http.StatusNoContent, do: withID(unmarkHacked)},
		{pattern: "POST /api/v1/admin/submissions/{id}/verify", about: "Evaluate a submission that is done once more; its results count beside the others.", body: reflect.TypeFor[verifyRequestJSON](), status: http.StatusNoContent, do: withID(verifyAgain)},
		{pattern: "PUT /api/v1/admin/boards/{board}", about: "Make a board from the files of a task, or give one another task.", large: true, body: reflect.TypeFor[boardRequestJSON](), answer: reflect.TypeFor[boardSavedJSON](), do: withBody(putBoard)},
		{pattern: "DELETE /api/v1/admin/boards/{board}", about: "Delete a board.", query: []param{{"force", "boolean", "also one that has submissions, and them with it"}}, status: http.StatusNoContent, do: removeBoard},
		{pattern: "PATCH /api/v1/admin/boards/{board}", about: "Change a board's settings; its history says who did and why.", body: reflect.TypeFor[boardEditJSON](), answer: reflect.TypeFor[boardEditedJSON](), do: withBody(editBoard)},
		{pattern: "POST /api/v1/admin/boards/{board}/rejudge", about: "Evaluate submissions once more, as after a change of the task: those that rank, unless the request selects others. The results take the others' place.", body: reflect.TypeFor[rejudgeRequestJSON](), answer: reflect.TypeFor[rejudgedJSON](), do: rejudge},
		{pattern: "GET /api/v1/admin/boards/{board}/rejudge", about: "How far the last re-evaluation is, and the ranks that it has changed.", answer: reflect.TypeFor[store.RejudgeReport](), do: rejudgeReport},
		{pattern: "PUT /api/v1/admin/about", about: "Replace the text about the competition.", large: true, body: reflect.TypeFor[aboutJSON](), answer: reflect.TypeFor[aboutJSON](), do: withBody(putAbout)},
		{pattern: "GET /api/v1/admin/accepting", about: "Whether submissions are taken.", answer: reflect.TypeFor[acceptingJSON](), do: accepting},
		{pattern: "PUT /api/v1/admin/accepting", about: "Stop submissions on all instances, or start them again.", body: reflect.TypeFor[acceptingJSON](), answer: reflect.TypeFor[acceptingJSON](), do: withBody(putAccepting)},
		{pattern: "GET /api/v1/admin/invites", about: "List invites.", query: []param{{"board", "string", "to this board alone"}}, answer: reflect.TypeFor[invitesJSON](), do: invites},
		{pattern: "POST /api/v1/admin/invites", about: "Make invites, each for one user to all of the boards.", body: reflect.TypeFor[newInvitesJSON](), answer: reflect.TypeFor[inviteCodesJSON](), do: withBody(newInvites)},
		{pattern: "DELETE /api/v1/admin/invites/{code}", about: "Take an invite back, and the access of who used it.", status: http.StatusNoContent, do: revokeInvite},
	}
}

// waitOf is where a submission stands.
func waitOf(w *backend.Wait) *waitJSON {
	if w == nil {
		return nil
	}
	return &waitJSON{w.GPU, w.Place, w.Running, w.Check, seconds(w.Expected)}
}
