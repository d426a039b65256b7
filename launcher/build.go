package launcher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"
)

// A Build is what the launcher reads of a build. Env is left out on purpose:
// it holds the payload.
type Build struct {
	Number       int
	WebURL       string `json:"web_url"`
	State        string
	Blocked      bool                 // beside the last real state
	CancelReason string               `json:"cancel_reason"`
	MetaData     map[string]any       `json:"meta_data"`
	StartedAt    *buildkite.Timestamp `json:"started_at"` // of its first job, so hardly ever the evaluation's
	FinishedAt   *buildkite.Timestamp `json:"finished_at"`
	Jobs         []Job                // latest attempts only; nil where the request left them out
}

// A Job is one attempt of one step.
type Job struct {
	ID              string
	Type            string // "script" for commands
	Name            string
	StepKey         string `json:"step_key"`
	State           string
	ExitStatus      *int     `json:"exit_status"`
	SignalReason    string   `json:"signal_reason"` // "agent_stop", "process_run_error", …
	AgentQueryRules []string `json:"agent_query_rules"`
	Agent           struct{ Name string }
	RetriesCount    int `json:"retries_count"`
	Retried         bool
	CreatedAt       *buildkite.Timestamp `json:"created_at"`
	RunnableAt      *buildkite.Timestamp `json:"runnable_at"`
	StartedAt       *buildkite.Timestamp `json:"started_at"`
	FinishedAt      *buildkite.Timestamp `json:"finished_at"`
}

var (
	openStates     = []string{"creating", "scheduled", "running", "failing", "canceling"}
	terminalStates = []string{"passed", "failed", "canceled", "skipped", "not_run"}
	otherStates    = []string{"waiting", "waiting_failed"} // open too; listings cannot be asked for them
)

// Over tells whether nothing more will happen. A state nobody has heard of is
// not the end.
func (b *Build) Over() bool {
	return b.FinishedAt != nil || slices.Contains(terminalStates, b.State)
}

func (b *Build) known() bool {
	return b.Over() || slices.Contains(openStates, b.State) || slices.Contains(otherStates, b.State)
}

// evaluation returns the job that works on the given queue: after a dynamic
// upload the first job is the one that uploaded. Should no job name the queue,
// it is the last of several.
func (b *Build) evaluation(queue string) *Job {
	var live []*Job
	for i := range b.Jobs {
		if j := &b.Jobs[i]; j.Type == "script" && !j.Retried {
			live = append(live, j)
		}
	}
	for _, j := range slices.Backward(live) {
		if slices.Contains(j.AgentQueryRules, "queue="+queue) {
			return j
		}
	}
	if len(live) > 1 {
		return live[len(live)-1]
	}
	return nil
}

// times returns when each job did what, the evaluation on queue last.
func (b *Build) times(queue string) []JobTimes {
	var out, last []JobTimes
	evaluation := b.evaluation(queue)
	for i := range b.Jobs {
		j := &b.Jobs[i]
		t := JobTimes{
			ID: j.ID, Step: j.StepKey, Created: moment(j.CreatedAt), Runnable: moment(j.RunnableAt),
			Started: moment(j.StartedAt), Finished: moment(j.FinishedAt),
		}
		switch {
		case j == evaluation:
			last = []JobTimes{t}
		case j.Type == "script":
			out = append(out, t)
		}
	}
	return append(out, last...)
}

func moment(t *buildkite.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

const (
	notCreated = iota // certainly no build
	uncertain         // perhaps a build
)

// certainty tells what a failed create may have left behind. Refusals left
// nothing, and so did a connection that was never made.
func certainty(err error) int {
	var limited *RateLimitError
	var op *net.OpError
	switch {
	case errors.As(err, &limited), errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		return notCreated
	case hopeless(err):
		return notCreated
	}
	var cert *tls.CertificateVerificationError
	if errors.As(err, &cert) {
		return notCreated
	}
	return uncertain
}

const (
	maxCreates   = 3
	lookupMargin = time.Hour // for a clock here that runs ahead of Buildkite's; the run id alone decides
)

// lookupDelays are the pauses before each look for a build that an uncertain
// create may have made. How soon a build shows in listings is not documented.
var lookupDelays = [...]time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

// create makes the build for runID, which must be its meta_data's run_id and
// nobody else's.
//
// There is no idempotency key, so an answer that got lost is looked up by run
// id, and only what cannot be found is created again. Of two builds that
// turn up after all, the first stays and the other is cancelled. When ctx
// ends in the middle, what was made is cancelled.
func (c *Client) create(ctx context.Context, runID string, body *buildkite.CreateBuild) (*Build, error) {
	since := time.Now().Add(-lookupMargin)
	var last error
	for n := range maxCreates {
		c.tally.creates.Add(1)
		b, err := c.createOnce(ctx, body)
		if err == nil {
			if n > 0 {
				return c.keepFirst(ctx, runID, since, b), nil
			}
			return b, nil
		}
		if certainty(err) == notCreated {
			return nil, fmt.Errorf("creating build: %w", err)
		}
		if ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("creating build: %w", ctx.Err()), c.cancelUnseen(ctx, runID, since))
		}
		last = err
		b, err = c.adopt(ctx, runID, since)
		if err != nil {
			return nil, fmt.Errorf("creating build: %v; whether run %s has a build is unknown: %w", last, runID, err)
		}
		if b != nil {
			c.log.Info("found the build of an interrupted create", "build", b.Number, "run", runID)
			return b, nil
		}
	}
	return nil, fmt.Errorf("creating build: %d attempts left no build, the last: %w", maxCreates, last)
}

func (c *Client) createOnce(ctx context.Context, body *buildkite.CreateBuild) (*Build, error) {
	b := &Build{}
	if _, err := c.do(ctx, http.MethodPost, c.path+"/builds", body, b); err != nil {
		return nil, err
	}
	if b.Number <= 0 {
		return nil, fmt.Errorf("the answer names no build: number %d", b.Number)
	}
	return b, nil
}

// adopt looks for runID's build several times; nil when there is none.
func (c *Client) adopt(ctx context.Context, runID string, since time.Time) (*Build, error) {
	var err error
	for _, d := range lookupDelays {
		if perr := c.pause(ctx, d); perr != nil {
			return nil, errors.Join(perr, c.cancelUnseen(ctx, runID, since))
		}
		var found []Build
		found, err = c.lookup(ctx, runID, since)
		if len(found) > 0 {
			c.cancelOthers(ctx, found[1:])
			return &found[0], nil
		}
		if hopeless(err) {
			break
		}
	}
	return nil, err // of the last look: an unanswered one permits no second create
}

// keepFirst looks once more after a repeated create, for a build of the first
// attempt that listings showed too late.
func (c *Client) keepFirst(ctx context.Context, runID string, since time.Time, b *Build) *Build {
	found, err := c.lookup(ctx, runID, since)
	if err != nil || len(found) == 0 || found[0].Number == b.Number {
		return b
	}
	c.cancelOthers(ctx, found[1:])
	if !slices.ContainsFunc(found, func(f Build) bool { return f.Number == b.Number }) {
		c.cancelOthers(ctx, []Build{*b})
	}
	return &found[0]
}

// lookup lists the builds of one run, the oldest first.
func (c *Client) lookup(ctx context.Context, runID string, since time.Time) ([]Build, error) {
	c.tally.lookups.Add(1)
	q := url.Values{
		"meta_data[run_id]": {runID},
		"created_from":      {since.UTC().Format(time.RFC3339)},
		"exclude_jobs":      {"true"},
		"exclude_pipeline":  {"true"},
	}
	builds, err := c.list(ctx, q)
	if err != nil {
		return nil, err
	}
	// Whether the filter matches parts of values is not documented.
	builds = slices.DeleteFunc(builds, func(b Build) bool { return b.MetaData["run_id"] != runID })
	slices.SortFunc(builds, func(a, b Build) int { return a.Number - b.Number })
	return builds, nil
}

func (c *Client) cancelOthers(ctx context.Context, builds []Build) {
	for _, b := range builds {
		if err := c.Cancel(ctx, b.Number); err != nil {
			c.log.Warn("a second build of one run stays", "build", b.Number, "error", err)
		}
	}
}

// cancelUnseen cancels what an interrupted create may have left, although ctx
// is over.
func (c *Client) cancelUnseen(ctx context.Context, runID string, since time.Time) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), partingTime)
	defer stop()
	found, err := c.lookup(ctx, runID, since)
	if err != nil {
		return fmt.Errorf("a build with meta_data run_id %s may be left: %w", runID, err)
	}
	c.cancelOthers(ctx, found)
	return nil
}

const (
	perPage  = 100
	maxPages = 50
)

// list lists builds of the pipeline, all pages.
func (c *Client) list(ctx context.Context, q url.Values) ([]Build, error) {
	return pages[Build](ctx, c, c.path+"/builds", q)
}

// pages gets every page of a list.
func pages[T any](ctx context.Context, c *Client, path string, q url.Values) ([]T, error) {
	q.Set("per_page", strconv.Itoa(perPage))
	var all []T
	for page, n := 1, 0; page > 0; n++ {
		if n == maxPages {
			return nil, fmt.Errorf("GET %s: more than %d pages", path, maxPages)
		}
		if page > 1 {
			q.Set("page", strconv.Itoa(page))
		}
		var part []T
		resp, err := c.do(ctx, http.MethodGet, path+"?"+q.Encode(), nil, &part)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
		page = resp.NextPage
	}
	return all, nil
}

// build gets one build with the latest attempt of each job.
func (c *Client) build(ctx context.Context, number int) (*Build, error) {
	path, err := c.buildPath(number)
	if err != nil {
		return nil, err
	}
	b := &Build{}
	if _, err := c.do(ctx, http.MethodGet, path+"?exclude_pipeline=true", nil, b); err != nil {
		return nil, err
	}
	return b, nil
}

// partingTime is what a last word to Buildkite may take after the caller's
// context has ended.
const partingTime = 15 * time.Second

// Cancel cancels a build. One that is over already is as good as cancelled.
func (c *Client) Cancel(ctx context.Context, number int) error {
	path, err := c.buildPath(number)
	if err != nil {
		return err
	}
	c.tally.others.Add(1)
	_, err = c.do(ctx, http.MethodPut, path+"/cancel", nil, nil)
	if status(err) == http.StatusUnprocessableEntity {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cancelling build %d: %w", number, err)
	}
	return nil
}

// describe words a job for an error: name, state and how it ended.
func (j *Job) describe() string {
	var s strings.Builder
	name := j.StepKey
	if name == "" {
		name = firstLine(j.Name, 60)
	}
	fmt.Fprintf(&s, "%s %s", name, j.State)
	if j.ExitStatus != nil {
		fmt.Fprintf(&s, ", exit status %d", *j.ExitStatus)
	}
	if j.SignalReason != "" {
		fmt.Fprintf(&s, ", signal reason %s", j.SignalReason)
	}
	if j.RetriesCount > 0 {
		fmt.Fprintf(&s, ", attempt %d", j.RetriesCount+1)
	}
	if j.Agent.Name != "" {
		fmt.Fprintf(&s, ", on agent %s", firstLine(j.Agent.Name, 60))
	}
	return s.String()
}
