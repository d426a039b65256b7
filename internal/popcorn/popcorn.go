// Package popcorn plays popcorn-cli for tests: it sends what the client sends, byte
// for byte where that matters, and holds every answer to the shape that the client
// reads. Members that the client does not know are allowed, as it ignores them.
package popcorn

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Client is one popcorn-cli with its configuration.
type Client struct {
	URL        string // POPCORN_API_URL
	CLIID      string // of ~/.popcorn.yaml
	AdminToken string // POPCORN_ADMIN_TOKEN, for the admin commands alone

	HTTP *http.Client  // nil: a plain one
	Poll time.Duration // between two polls; 0: the client's 5 s
}

// A Refusal is an answer that is no success. The client prints the detail if it is
// a string, and else the whole body.
type Refusal struct {
	Status     int
	Detail     string
	RetryAfter string
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("the server returned status %d: %s", r.Status, r.Detail)
}

// An Ended is a submission that came to no result, with which the client exits 1.
type Ended struct{ Status, Detail string }

func (e *Ended) Error() string { return "submission " + e.Status + ": " + e.Detail }

// A Queue is what the client prints while it waits.
type Queue struct {
	Runner, GPU string
	Jobs        *int64
}

// An Accepted is the answer to a submission.
type Accepted struct {
	ID    int64
	Queue *Queue
}

// A Run is one row of a submission's result.
type Run struct {
	Mode, Runner       string
	Secret, Passed     bool
	Score              *float64
	StartTime, EndTime string
}

// A Submission is what a poll says.
type Submission struct {
	ID                                                  int64
	LeaderboardID                                       int64
	Leaderboard, FileName, UserID, SubmissionTime, Code string
	Done                                                bool
	JobStatus, JobError                                 string
	Runs                                                []Run
	Queue                                               *Queue
}

// A Listed is one line of a user's list.
type Listed struct {
	ID                                    int64
	Leaderboard, FileName, SubmissionTime string
	Done                                  bool
	Runs                                  []Run // Runner and Score alone
}

// A Leaderboard is one line of the list of boards.
type Leaderboard struct {
	Name, Description string
	GPUs              []string
}

// A Result is what the event stream ends with.
type Result struct {
	Statuses int // events before it
	Results  []map[string]any
	Reports  []string
}

// Submit hands in a file. Board and mode go out in lower case, the GPU type as it
// is, and none of them escaped.
func (c *Client) Submit(ctx context.Context, board, gpu, mode, fileName string, code []byte) (*Accepted, error) {
	resp, err := c.upload(ctx, "/submission/"+strings.ToLower(board)+"/"+gpu+"/"+strings.ToLower(mode), fileName, code)
	if err != nil {
		return nil, err
	}
	v, err := decode(resp)
	if err != nil {
		return nil, err
	}
	s := newShape(v)
	s.word("status", "accepted")
	s.number(s.object("details"), "job_status_id")
	a := &Accepted{ID: s.number(s.object("details"), "id"), Queue: s.queue("runner_queue")}
	if resp.StatusCode != http.StatusAccepted {
		s.fault("status %d, want 202", resp.StatusCode)
	}
	return a, s.err()
}

// Run is the client's submit command: it hands in and asks until there is a result.
//
// Errors: [*Refusal], [*Ended], an answer of another shape.
func (c *Client) Run(ctx context.Context, board, gpu, mode, fileName string, code []byte) (*Submission, error) {
	a, err := c.Submit(ctx, board, gpu, mode, fileName, code)
	if err != nil {
		return nil, err
	}
	return c.Wait(ctx, a.ID)
}

// Wait asks until there is a result. Like the client it gives up at the first poll
// that fails.
func (c *Client) Wait(ctx context.Context, id int64) (*Submission, error) {
	pause := c.Poll
	if pause == 0 {
		pause = 5 * time.Second
	}
	for {
		s, err := c.Submission(ctx, id)
		if err != nil {
			return nil, err
		}
		switch s.JobStatus {
		case "failed", "timed_out", "hacked":
			return s, &Ended{s.JobStatus, s.JobError}
		}
		if s.Done {
			return s, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Submission polls once.
func (c *Client) Submission(ctx context.Context, id int64) (*Submission, error) {
	v, err := c.call(ctx, http.MethodGet, "/user/submissions/"+strconv.FormatInt(id, 10), nil, false)
	if err != nil {
		return nil, err
	}
	s := newShape(v)
	out := &Submission{ID: s.number(s.top, "id"), LeaderboardID: s.number(s.top, "leaderboard_id"), Leaderboard: s.text(s.top, "leaderboard_name"), FileName: s.text(s.top, "file_name"),
		UserID: s.text(s.top, "user_id"), SubmissionTime: s.time(s.top, "submission_time"), Done: s.yes(s.top, "done"), Code: s.text(s.top, "code"), Queue: s.queue("runner_queue")}
	job := s.object("job")
	out.JobStatus, out.JobError = s.textOrNull(job, "status"), s.textOrNull(job, "error")
	s.textOrNull(job, "last_heartbeat")
	for _, r := range s.list(s.top, "runs") {
		run := Run{Mode: s.text(r, "mode"), Runner: s.text(r, "runner"), Secret: s.yes(r, "secret"), Passed: s.yes(r, "passed"), Score: s.score(r), StartTime: s.time(r, "start_time"), EndTime: s.time(r, "end_time")}
		if _, there := r["result"]; there && run.Secret {
			s.fault("a secret run has a result")
		}
		out.Runs = append(out.Runs, run)
	}
	if out.ID != id {
		s.fault("id: got %d, want %d", out.ID, id)
	}
	return out, s.err()
}

// Submissions lists the user's submissions; limit 0 leaves it to the server.
func (c *Client) Submissions(ctx context.Context, board string, limit, offset int) ([]Listed, error) {
	path, sep := "/user/submissions", "?"
	for _, p := range []struct{ name, value string }{{"leaderboard", board}, {"limit", positive(limit)}, {"offset", positive(offset)}} {
		if p.value != "" {
			path, sep = path+sep+p.name+"="+p.value, "&"
		}
	}
	v, err := c.call(ctx, http.MethodGet, path, nil, false)
	if err != nil {
		return nil, err
	}
	s := newShape(map[string]any{"list": v})
	out := []Listed{}
	for _, l := range s.list(s.top, "list") {
		one := Listed{ID: s.number(l, "id"), Leaderboard: s.text(l, "leaderboard_name"), FileName: s.text(l, "file_name"), SubmissionTime: s.time(l, "submission_time"), Done: s.yes(l, "done")}
		for _, r := range s.list(l, "runs") {
			one.Runs = append(one.Runs, Run{Runner: s.text(r, "gpu_type"), Score: s.score(r)})
		}
		out = append(out, one)
	}
	return out, s.err()
}

func positive(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Delete deletes a submission.
func (c *Client) Delete(ctx context.Context, id int64) error {
	v, err := c.call(ctx, http.MethodDelete, "/user/submissions/"+strconv.FormatInt(id, 10), nil, false)
	if err != nil {
		return err
	}
	s := newShape(v)
	s.word("status", "ok")
	s.number(s.top, "submission_id")
	return s.err()
}

// Join uses an invite.
func (c *Client) Join(ctx context.Context, code string) (boards []string, err error) {
	v, err := c.call(ctx, http.MethodPost, "/user/join", map[string]string{"code": code}, false)
	if err != nil {
		return nil, err
	}
	s := newShape(v)
	s.word("status", "ok")
	return s.texts(s.top, "leaderboards"), s.err()
}

// Leaderboards lists the boards.
func (c *Client) Leaderboards(ctx context.Context) ([]Leaderboard, error) {
	v, err := c.call(ctx, http.MethodGet, "/leaderboards", nil, false)
	if err != nil {
		return nil, err
	}
	s := newShape(map[string]any{"list": v})
	out := []Leaderboard{}
	for _, l := range s.list(s.top, "list") {
		if _, is := l["task"].(map[string]any); !is {
			s.fault("task: got %T, want an object", l["task"])
		}
		if _, there := l["secret_seed"]; there {
			s.fault("secret_seed is there")
		}
		s.number(l, "id")
		s.time(l, "deadline")
		out = append(out, Leaderboard{s.text(l, "name"), s.text(l, "description"), s.texts(l, "gpu_types")})
	}
	return out, s.err()
}

// GPUs lists a board's GPU types.
func (c *Client) GPUs(ctx context.Context, board string) ([]string, error) {
	v, err := c.call(ctx, http.MethodGet, "/gpus/"+board, nil, false)
	if err != nil {
		return nil, err
	}
	s := newShape(map[string]any{"list": v})
	return s.texts(s.top, "list"), s.err()
}

// Init begins a log-in and returns the id that the client keeps.
func (c *Client) Init(ctx context.Context, provider string) (string, error) {
	v, err := c.call(ctx, http.MethodGet, "/auth/init?provider="+provider, nil, false)
	if err != nil {
		return "", err
	}
	s := newShape(v)
	return s.text(s.top, "state"), s.err()
}

// Admin calls one of the admin's routes; body nil is none. Each answers
// {"status": "ok", …}.
func (c *Client) Admin(ctx context.Context, method, path string, body any) (map[string]any, error) {
	v, err := c.call(ctx, method, path, body, true)
	if err != nil {
		return nil, err
	}
	s := newShape(v)
	s.word("status", "ok")
	return s.top, s.err()
}
