// Package popcorn plays popcorn-cli for tests: it sends what the client sends, byte
// for byte where that matters, and holds every answer to the shape that the client
// reads. Members that the client does not know are allowed, as it ignores them.
package popcorn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	Runner string `json:"runner"`
	GPU    string `json:"gpu"`
	Jobs   *int64 `json:"queued_jobs"`
}

// An Accepted is the answer to a submission.
type Accepted struct {
	ID    int64
	Queue *Queue
}

// A Run is one row of a submission's result.
type Run struct {
	Mode   string `json:"mode"`
	Runner string `json:"runner"`
	Secret bool   `json:"secret"`
	Passed bool   `json:"passed"`
	Score  *Score `json:"score"`
}

// A Submission is what a poll says.
type Submission struct {
	ID          int64  `json:"id"`
	Leaderboard string `json:"leaderboard_name"`
	FileName    string `json:"file_name"`
	UserID      string `json:"user_id"`
	Code        string `json:"code"`
	Done        bool   `json:"done"`
	JobStatus   string `json:"-"`
	JobError    string `json:"-"`
	Runs        []Run  `json:"runs"`
	Queue       *Queue `json:"runner_queue"`
}

// A Listed is one line of a user's list.
type Listed struct {
	ID   int64 `json:"id"`
	Done bool  `json:"done"`
	Runs []struct {
		Score *Score `json:"score"`
	} `json:"runs"`
}

// A Leaderboard is one line of the list of boards.
type Leaderboard struct {
	Name string   `json:"name"`
	GPUs []string `json:"gpu_types"`
}

// A Result is what the event stream ends with.
type Result struct {
	Statuses int              `json:"-"` // events before it
	Results  []map[string]any `json:"results"`
	Reports  []string         `json:"reports"`
}

// Submit hands in a file. Board and mode go out in lower case, the GPU type as it
// is, and none of them escaped.
func (c *Client) Submit(ctx context.Context, board, gpu, mode, fileName string, code []byte) (*Accepted, error) {
	resp, err := c.upload(ctx, "/submission/"+strings.ToLower(board)+"/"+gpu+"/"+strings.ToLower(mode), fileName, code)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Details struct{ ID int64 }
		Queue   *Queue `json:"runner_queue"`
	}
	err = read("accepted", body, &answer)
	if resp.StatusCode != http.StatusAccepted {
		err = errors.Join(err, fmt.Errorf("status %d, want 202", resp.StatusCode))
	}
	return &Accepted{answer.Details.ID, answer.Queue}, err
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
		case <-time.After(cmp.Or(c.Poll, 5*time.Second)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Submission polls once.
func (c *Client) Submission(ctx context.Context, id int64) (*Submission, error) {
	var answer struct {
		Submission
		Job struct{ Status, Error string }
	}
	err := c.get(ctx, "submission", "/user/submissions/"+strconv.FormatInt(id, 10), &answer)
	out := &answer.Submission
	out.JobStatus, out.JobError = answer.Job.Status, answer.Job.Error
	if err == nil && out.ID != id {
		err = fmt.Errorf("id: got %d, want %d", out.ID, id)
	}
	return out, err
}

// Submissions lists the user's submissions; limit 0 leaves it to the server.
func (c *Client) Submissions(ctx context.Context, board string, limit, offset int) (list []Listed, err error) {
	path, sep := "/user/submissions", "?"
	for _, p := range []struct{ name, value string }{{"leaderboard", board}, {"limit", strconv.Itoa(limit)}, {"offset", strconv.Itoa(offset)}} {
		if p.value != "" && p.value != "0" {
			path, sep = path+sep+p.name+"="+p.value, "&"
		}
	}
	err = c.get(ctx, "submissions", path, &list)
	return list, err
}

// Delete deletes a submission.
func (c *Client) Delete(ctx context.Context, id int64) error {
	return c.call(ctx, "deleted", http.MethodDelete, "/user/submissions/"+strconv.FormatInt(id, 10), nil, false, new(any))
}

// Join uses an invite.
func (c *Client) Join(ctx context.Context, code string) (boards []string, err error) {
	var answer struct{ Leaderboards []string }
	err = c.call(ctx, "joined", http.MethodPost, "/user/join", map[string]string{"code": code}, false, &answer)
	return answer.Leaderboards, err
}

// Leaderboards lists the boards.
func (c *Client) Leaderboards(ctx context.Context) (list []Leaderboard, err error) {
	err = c.get(ctx, "leaderboards", "/leaderboards", &list)
	return list, err
}

// GPUs lists a board's GPU types.
func (c *Client) GPUs(ctx context.Context, board string) (list []string, err error) {
	err = c.get(ctx, "texts", "/gpus/"+board, &list)
	return list, err
}

// Init begins a log-in and returns the id that the client keeps.
func (c *Client) Init(ctx context.Context, provider string) (string, error) {
	var answer struct{ State string }
	err := c.get(ctx, "login", "/auth/init?provider="+provider, &answer)
	return answer.State, err
}

// Admin calls one of the admin's routes; body nil is none. Each answers
// {"status": "ok", …}.
func (c *Client) Admin(ctx context.Context, method, path string, body any) (answer map[string]any, err error) {
	err = c.call(ctx, "done", method, path, body, true, &answer)
	return answer, err
}
