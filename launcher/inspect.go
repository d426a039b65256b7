package launcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// maxLog bounds what [Client.Log] returns of one job: its end.
const maxLog = 4 << 20

// Log returns a job's log, the last 4 MiB of it, as printable lines. It needs the
// scope read_build_logs.
//
// Errors: [APIError] and ctx's.
func (c *Client) Log(ctx context.Context, number int, job string) (string, error) {
	ctx, stop := patient(ctx)
	defer stop()
	log, err := persisted(ctx, c, "reading a log", func() (string, error) { return c.rawTail(ctx, number, job, maxLog) })
	return text.Lines(log), err
}

// LastLine returns the last line of a job's log that says something, "" when
// none does. It asks once.
func (c *Client) LastLine(ctx context.Context, number int, job string) (string, error) {
	tail, err := c.logTail(ctx, number, job)
	if err != nil {
		return "", err
	}
	for _, line := range slices.Backward(strings.Split(tail, "\n")) {
		if line = strings.TrimSpace(line); line != "" {
			return text.Line(line, 200), nil
		}
	}
	return "", nil
}

// ErrNothingToRetry is a build none of whose jobs failed.
var ErrNothingToRetry = errors.New("no job of it failed, timed out, expired or was canceled, so there is nothing to try again")

// retriable are the states of jobs that may be tried again.
var retriable = []string{"failed", "timed_out", "canceled", "expired"}

// Retry starts the jobs of a build again that did not pass, and returns how many.
// The run keeps its id, and its new result takes the place of the old one.
//
// Errors: [ErrNothingToRetry], [APIError], ctx's.
func (c *Client) Retry(ctx context.Context, number int) (int, error) {
	b, err := c.Build(ctx, number)
	if err != nil {
		return 0, err
	}
	ctx, stop := patient(ctx)
	defer stop()
	retried := 0
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if j.Type != "script" || j.Retried || !slices.Contains(retriable, j.State) {
			continue
		}
		path, err := c.buildPath(number, "jobs", j.ID, "retry")
		if err != nil {
			return retried, err
		}
		err = c.persist(ctx, "retrying a job", func() error {
			_, err := c.do(withUse(ctx, useCreate), http.MethodPut, path, nil, nil)
			if status(err) == http.StatusBadRequest { // an answer got lost, or somebody was faster
				return nil
			}
			return err
		})
		if err != nil {
			return retried, fmt.Errorf("retrying %s of build %d: %w", j.describe(), number, err)
		}
		retried++
	}
	if retried == 0 {
		return 0, fmt.Errorf("build %d is %s: %w", number, b.State, ErrNothingToRetry)
	}
	return retried, nil
}

// ValidRunID reports whether a run may have this id: up to 200 letters, digits,
// dots, colons, - and _, of which the first is a letter or a digit.
func ValidRunID(id string) bool { return runIDPattern.MatchString(id) }

// Serving says who works on a queue's jobs.
type Serving struct {
	Agents int // connected, and not paused
	Busy   int // of them
	Paused int
}

// Serving asks who works on the jobs of a queue. It takes a request for each
// hundred agents of the organization, and the scope read_agents.
func (c *Client) Serving(ctx context.Context, queue string) (Serving, error) {
	agents, err := c.Agents(ctx)
	if err != nil {
		return Serving{}, err
	}
	return ByQueue(agents)[queue], nil
}

// ByQueue counts agents by the queues that they serve.
func ByQueue(agents []Agent) map[string]Serving {
	count := map[string]Serving{}
	for i := range agents {
		a := &agents[i]
		queues := []string{a.Queue}
		for _, tag := range a.Tags {
			if key, found := strings.CutPrefix(tag, "queue="); found && !slices.Contains(queues, key) {
				queues = append(queues, key)
			}
		}
		for _, queue := range queues {
			s := count[queue]
			switch {
			case queue == "" || a.State != Connected:
				continue
			case a.Paused:
				s.Paused++
			default:
				s.Agents++
				if a.Busy() {
					s.Busy++
				}
			}
			count[queue] = s
		}
	}
	return count
}

// Ahead counts the builds of this pipeline that wait for the queue of r longer
// than it does. It takes one request.
func (c *Client) Ahead(ctx context.Context, r *Run) (int, error) {
	open, err := c.Builds(ctx, Query{States: []string{"scheduled", "running"}, MetaData: map[string]string{metaQueue: r.Queue}, Limit: perPage})
	if err != nil {
		return 0, err
	}
	ahead := 0
	for i := range open {
		if b := &open[i]; b.Number < r.Build {
			if j := b.Evaluation(r.Queue); j == nil || j.StartedAt == nil {
				ahead++
			}
		}
	}
	return ahead, nil
}

// Mine selects the builds of this installation, see [Options].
func (c *Client) Mine() map[string]string { return map[string]string{metaLauncher: c.id} }

// OfGPU selects the builds for a GPU type.
func OfGPU(gpu string) map[string]string { return map[string]string{metaGPU: gpu} }

// An Overview is a build of a launcher, as a list shows it.
type Overview struct {
	Build    int    `json:"build"`
	BuildURL string `json:"build_url"`
	State    string `json:"state" jsonschema:"Buildkite's word; says nothing about the submission"`
	Outcome  string `json:"outcome,omitempty" jsonschema:"of the run, once it has one"`
	RunID    string `json:"run_id"`
	GPUType  string `json:"gpu_type"`
	Queue    string `json:"queue"`
	Mode     string `json:"mode"`
	Created  string `json:"created" jsonschema:"RFC 3339"`
	Finished string `json:"finished,omitempty" jsonschema:"RFC 3339"`
}

// Overview returns what a list shows of a build.
func (b *Build) Overview() Overview {
	o := Overview{Build: b.Number, BuildURL: b.WebURL, State: text.Line(b.State, 40), RunID: b.RunID(), GPUType: b.word(metaGPU), Queue: b.word(metaQueue), Mode: b.word(metaMode)}
	outcome, _ := b.MetaData[schema.MetaOutcome(o.RunID)].(string)
	o.Outcome = text.Line(outcome, 40)
	if b.CreatedAt != nil {
		o.Created = b.CreatedAt.UTC().Format(time.RFC3339)
	}
	if b.FinishedAt != nil {
		o.Finished = b.FinishedAt.UTC().Format(time.RFC3339)
	}
	return o
}
