package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// The routes of this file and the next have Kernelbot's names and shapes. What they
// leave out on purpose: a board's secret seed and its task's files, which Kernelbot
// sends to everybody; the scores and times of secret runs, which a submission could
// use to tell its owner what it read of the secret cases. The rows stay, so that a
// client can say whether they passed.

// timeLayout is a time as Kernelbot writes it.
const timeLayout = "2006-01-02T15:04:05.999999+00:00"

func stamp(t time.Time) string { return t.UTC().Format(timeLayout) }

func stampOrNil(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return new(stamp(t))
}

// orNil is a value that JSON writes as null when it is zero.
func orNil[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// streamPattern is the older route of popcorn-cli. Any address of three parts is one.
const streamPattern = "POST /{board}/{gpu}/{mode}"

func popcornRoutes() []route {
	return []route{
		{pattern: "POST /submission/{board}/{gpu}/{mode}", about: "Hand in a file; it is evaluated while you ask how far it is.", needs: user, upload: true, status: http.StatusAccepted, answer: reflect.TypeFor[acceptedJSON](), do: submit},
		{pattern: "POST /admin/submission/{board}/{gpu}/{mode}", about: "Hand in a file after the deadline, with the admin's token and a CLI id.", upload: true, status: http.StatusAccepted, answer: reflect.TypeFor[acceptedJSON](), do: submit},
		{pattern: streamPattern, about: "Hand in a file and wait for its result: events status, then one event result or error. Leaving does not lose the submission.", needs: user, upload: true, stream: true, media: eventStream, do: submitAndWait},
		{pattern: "GET /user/submissions", about: "List your submissions, newest first.", needs: user, query: []param{{"leaderboard", "string", "of this board alone"}, {"limit", "integer", "1 to 100; 50"}, {"offset", "integer", "0"}}, answer: reflect.TypeFor[[]mySubmissionJSON](), do: mySubmissions},
		{pattern: "GET /user/submissions/{id}", about: "Read a submission of yours, and how far it is.", needs: user, answer: reflect.TypeFor[pollJSON](), do: withSubmission(poll)},
		{pattern: "DELETE /user/submissions/{id}", about: "Delete a submission of yours; what has not finished is cancelled.", needs: user, answer: reflect.TypeFor[deletedJSON](), do: withID(deleteSubmission)},
		{pattern: "POST /user/join", about: "Use an invite to closed boards.", needs: user, body: reflect.TypeFor[joinRequestJSON](), answer: reflect.TypeFor[joinedJSON](), do: withBody(popcornJoin)},
		{pattern: "GET /leaderboards", about: "List the boards that you may see.", answer: reflect.TypeFor[[]leaderboardJSON](), do: leaderboards},
		{pattern: "GET /gpus/{board}", about: "List a board's GPU types.", answer: reflect.TypeFor[[]string](), do: gpus},
		{pattern: "GET /submissions/{board}/{gpu}", about: "The ranking of a board on a GPU type.", query: []param{{"limit", "integer", "all without"}, {"offset", "integer", "0"}}, answer: reflect.TypeFor[[]RankedSubmission](), do: popcornRanking},
		{pattern: "GET /submission_count/{board}/{gpu}", about: "How many users rank on a GPU type.", query: []param{{"user_id", "string", "1 or 0: whether this user ranks"}}, answer: reflect.TypeFor[countedJSON](), do: count},
		{pattern: "GET /runner_queue/{gpu}", about: "What waits for a GPU type.", answer: reflect.TypeFor[runnerQueueJSON](), do: runnerQueue},
	}
}

// A RunnerQueue says what waits for a GPU type, or in a poll what goes before the
// submission.
type runnerQueueJSON struct {
	Runner           string   `json:"runner"`
	GPU              string   `json:"gpu"`
	QueuedJobs       *int     `json:"queued_jobs"`
	RunningJobs      *int     `json:"running_jobs"`
	AvailableRunners *int     `json:"available_runners"`
	Status           string   `json:"status"` // available or unavailable
	Error            *string  `json:"error"`
	Running          *bool    `json:"running,omitempty"`          // of a submission: it has begun
	ExpectedSeconds  *float64 `json:"expected_seconds,omitempty"` // of a submission: until it begins
}

// runner is what the queue is called to users.
const runner = "Buildkite"

func queueOf(w *backend.Wait) *runnerQueueJSON {
	if w == nil || w.Check {
		return nil
	}
	q := &runnerQueueJSON{Runner: runner, GPU: w.GPU, Status: "available", Running: &w.Running, ExpectedSeconds: seconds(w.Expected)}
	if !w.Running {
		q.QueuedJobs = &w.Place
	}
	return q
}

// acceptedJSON says that a submission is kept and will be evaluated.
type acceptedJSON struct {
	Details     acceptedIDsJSON  `json:"details"`
	RunnerQueue *runnerQueueJSON `json:"runner_queue"`
	Status      string           `json:"status"` // accepted
}

type acceptedIDsJSON struct {
	ID          int64 `json:"id"`
	JobStatusID int64 `json:"job_status_id"`
}

// handIn reads the form and submits; where says for which board, gpu and mode.
func handIn(c *call, where func(name string) string) (*store.Accepted, error) {
	f, err := c.file()
	if err != nil {
		return nil, err
	}
	return c.back().Submit(c.ctx(), c.viewer(), backend.Request{Board: where("board"), GPU: where("gpu"), Mode: where("mode"), FileName: f.name, Code: f.code})
}

func submit(c *call) (any, error) {
	receipt, err := handIn(c, c.PathValue)
	if err != nil {
		return nil, err
	}
	return accepted(c, receipt), nil
}

// accepted answers for a submission that is kept: whatever goes wrong from here on,
// the client gets its id.
func accepted(c *call, receipt *store.Accepted) acceptedJSON {
	a := acceptedJSON{Details: acceptedIDsJSON{receipt.ID, receipt.JobStatusID}, Status: "accepted"}
	if s, err := c.back().Submission(c.ctx(), c.viewer(), receipt.ID); err == nil {
		a.RunnerQueue = queueOf(s.Wait)
	}
	return a
}

// A Poll is one submission as its owner sees it.
type pollJSON struct {
	ID int64 `json:"id"`
	submissionRowJSON
	Job         pollJobJSON      `json:"job"`
	RunnerQueue *runnerQueueJSON `json:"runner_queue"`
}

// submissionRowJSON is what Kernelbot tells of a submission to its owner and to
// admins alike.
type submissionRowJSON struct {
	LeaderboardID   int64         `json:"leaderboard_id"`
	LeaderboardName string        `json:"leaderboard_name"`
	FileName        string        `json:"file_name"`
	UserID          string        `json:"user_id"`
	SubmissionTime  string        `json:"submission_time"`
	Done            bool          `json:"done"`
	Code            string        `json:"code"`
	Runs            []pollRunJSON `json:"runs"`
}

type pollJobJSON struct {
	Status        *string `json:"status"`
	Error         *string `json:"error"`
	LastHeartbeat *string `json:"last_heartbeat"`
}

// A PollRun is one row of a submission. Of a secret one score is null for everybody
// but admins, and its times are the same whole minute.
type pollRunJSON struct {
	StartTime string          `json:"start_time"`
	EndTime   string          `json:"end_time"`
	Mode      string          `json:"mode"`
	Secret    bool            `json:"secret"`
	Runner    string          `json:"runner"`
	Score     *float64        `json:"score"`
	Passed    bool            `json:"passed"`
	Result    json.RawMessage `json:"result,omitempty"` // of public tests and benchmarks
}

func poll(c *call, s *backend.Submission) (any, error) {
	if !s.Own && !c.who.Admin {
		return nil, &refusal{http.StatusForbidden, "this submission is somebody else's"}
	}
	return pollJSON{s.ID, rowOf(s), jobOf(s), queueOf(s.Wait)}, nil
}

func jobOf(s *backend.Submission) pollJobJSON {
	return pollJobJSON{orNil(s.Job.Status), orNil(s.Job.Error), stampOrNil(s.Job.Heartbeat)}
}

func rowOf(s *backend.Submission) submissionRowJSON {
	return submissionRowJSON{s.BoardID, s.Board, s.FileName, s.UserID, stamp(s.Time), s.Done, s.Code, mapped(s.Runs, func(r store.PolledRun) pollRunJSON {
		run := pollRunJSON{StartTime: stamp(r.Start), EndTime: stamp(r.End), Mode: r.Mode, Secret: r.Secret, Runner: r.Runner, Score: r.Score, Passed: r.Passed}
		if !r.Secret && (r.Mode == schema.ModeTest || r.Mode == schema.ModeBenchmark) {
			run.Result = r.Result
		}
		return run
	})}
}

// A MySubmission is one line of a user's list.
type mySubmissionJSON struct {
	ID              int64         `json:"id"`
	LeaderboardName string        `json:"leaderboard_name"`
	FileName        string        `json:"file_name"`
	SubmissionTime  string        `json:"submission_time"`
	Done            bool          `json:"done"`
	Runs            []runLineJSON `json:"runs"` // of what ranks
}

type runLineJSON struct {
	GPUType string   `json:"gpu_type"`
	Score   *float64 `json:"score"`
}

func mySubmissions(c *call) (any, error) {
	limit, offset, err := c.page(50, 1, 100)
	if err != nil {
		return nil, err
	}
	list, err := c.back().Mine(c.ctx(), c.viewer(), store.Query{UserID: c.who.ID, Board: lower(c.word("leaderboard")), Limit: limit, Offset: offset})
	if err != nil {
		return nil, err
	}
	all := []mySubmissionJSON{}
	for _, l := range list {
		m := mySubmissionJSON{ID: l.ID, LeaderboardName: l.Board, FileName: l.FileName, SubmissionTime: stamp(l.Time), Done: l.Done, Runs: []runLineJSON{}}
		ranks := map[string]bool{}
		for _, v := range l.Verdicts {
			ranks[v.GPU] = v.Ranks
		}
		for _, r := range l.Runs {
			if ranks[r.GPU] {
				m.Runs = append(m.Runs, runLineJSON{r.GPU, r.Score})
			}
		}
		all = append(all, m)
	}
	return all, nil
}

type deletedJSON struct {
	Status       string `json:"status"` // ok
	SubmissionID int64  `json:"submission_id"`
}

func deleteSubmission(c *call, id int64) (any, error) {
	if err := c.back().Delete(c.ctx(), c.viewer(), id); err != nil {
		return nil, err
	}
	return deletedJSON{"ok", id}, nil
}

type joinRequestJSON struct {
	Code string `json:"code"`
}

type joinedJSON struct {
	Status       string   `json:"status"` // ok
	Leaderboards []string `json:"leaderboards"`
}

func popcornJoin(c *call, in joinRequestJSON) (any, error) {
	boards, err := join(c, in)
	return joinedJSON{"ok", boards}, err
}

func join(c *call, in joinRequestJSON) ([]string, error) {
	if in.Code == "" || len(in.Code) > 200 {
		return nil, &refusal{http.StatusBadRequest, "code: want an invite's"}
	}
	return c.back().Join(c.ctx(), c.viewer(), in.Code)
}

// A Leaderboard is a board without what is secret in it. Kernelbot's task holds all
// files; here it has the description, which clients look for.
type leaderboardJSON struct {
	ID          int64               `json:"id"`
	Name        string              `json:"name"`
	Deadline    string              `json:"deadline"`
	Task        leaderboardTaskJSON `json:"task"`
	GPUTypes    []string            `json:"gpu_types"`
	CreatorID   int64               `json:"creator_id"`
	ForumID     int64               `json:"forum_id"`
	Description string              `json:"description"`
	Visibility  string              `json:"visibility"`
}

type leaderboardTaskJSON struct {
	Description string `json:"description"`
}

func leaderboards(c *call) (any, error) {
	boards, err := c.back().Boards(c.ctx(), c.viewer())
	return mapped(boards, func(b store.Board) leaderboardJSON {
		return leaderboardJSON{ID: b.ID, Name: b.Name, Deadline: stamp(b.Deadline), Task: leaderboardTaskJSON{b.Description}, GPUTypes: list(b.GPUs), CreatorID: -1, ForumID: -1, Description: b.Description, Visibility: b.Visibility}
	}), err
}

// list is a slice that JSON writes as a list, empty or not.
func list[T any](s []T) []T { return append([]T{}, s...) }

func gpus(c *call) (any, error) {
	b, err := c.back().Board(c.ctx(), c.viewer(), c.board())
	if err != nil {
		return nil, err
	}
	return list(b.GPUs), nil
}

// A RankedSubmission is one line of a ranking.
type RankedSubmission struct {
	SubmissionID    int64   `json:"submission_id"`
	Rank            int     `json:"rank"`
	SubmissionName  string  `json:"submission_name"`
	SubmissionTime  string  `json:"submission_time"`
	SubmissionScore float64 `json:"submission_score"` // seconds
	LeaderboardName string  `json:"leaderboard_name"`
	UserID          any     `json:"user_id"` // a number, as in Kernelbot, where it is one
	UserName        string  `json:"user_name"`
	GPUType         string  `json:"gpu_type"`
}

func popcornRanking(c *call) (any, error) {
	limit, offset, err := c.page(0, 0, 1<<31-1)
	if err != nil {
		return nil, err
	}
	entries, _, err := c.back().Ranking(c.ctx(), c.viewer(), c.board(), c.PathValue("gpu"), limit, offset)
	return mapped(entries, func(e ranking.Entry) RankedSubmission {
		return RankedSubmission{e.SubmissionID, e.Rank, e.FileName, stamp(e.Time), e.Score, c.board(), numberOr(e.UserID), e.User, c.PathValue("gpu")}
	}), err
}

func numberOr(s string) any {
	if n, err := strconv.ParseUint(s, 10, 64); err == nil && strconv.FormatUint(n, 10) == s {
		return n
	}
	return s
}

type countedJSON struct {
	Count int `json:"count"`
}

func count(c *call) (any, error) {
	if id := c.word("user_id"); id != "" {
		steps, err := c.back().History(c.ctx(), c.viewer(), c.board(), c.PathValue("gpu"), id)
		return countedJSON{min(1, len(steps))}, err
	}
	n, err := c.back().Count(c.ctx(), c.viewer(), c.board(), c.PathValue("gpu"))
	return countedJSON{n}, err
}

func runnerQueue(c *call) (any, error) {
	line, err := c.back().Line(c.ctx(), c.viewer())
	if err != nil {
		return nil, err
	}
	for _, g := range line {
		if g.GPU != c.PathValue("gpu") {
			continue
		}
		q := runnerQueueJSON{Runner: runner, GPU: g.GPU, QueuedJobs: &g.Waiting, RunningJobs: &g.Running, Status: "available", Error: orNil(g.Off)}
		if g.Off != "" {
			q.Status = "unavailable"
		}
		if g.Known {
			q.AvailableRunners = new(max(0, g.Agents-g.Busy))
		}
		return q, nil
	}
	return nil, &refusal{http.StatusNotFound, "no board has this GPU type"}
}
