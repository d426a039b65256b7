package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/launcher/pace"
	"github.com/gpu-mode/kbgen/schema/text"
)

const (
	perPage      = pace.PageSize
	leastPerPage = 5
	maxPages     = 50
)

// list lists builds of the pipeline, all pages, once.
func (c *Client) list(ctx context.Context, q url.Values) ([]Build, error) {
	return pages[Build](ctx, c, c.path+"/builds", q)
}

// pages gets every page of a list. Pages that are too large, since builds repeat
// their payloads, are asked for anew in smaller ones.
func pages[T any](ctx context.Context, c *Client, path string, q url.Values) ([]T, error) {
	for size := perPage; ; size /= 4 {
		all, err := pagesOf[T](ctx, c, path, q, size)
		if size <= leastPerPage || !errors.Is(err, errTooLarge) {
			return all, err
		}
	}
}

func pagesOf[T any](ctx context.Context, c *Client, path string, q url.Values, size int) ([]T, error) {
	q.Set("per_page", strconv.Itoa(size))
	q.Del("page")
	var all []T
	for number, n := 1, 0; number > 0; n++ {
		if n == maxPages {
			return nil, permanentError{fmt.Errorf("GET %s: more than %d pages", path, maxPages)}
		}
		if number > 1 {
			q.Set("page", strconv.Itoa(number))
		}
		part, next, err := page[T](ctx, c, path, q)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
		number = next
	}
	return all, nil
}

// allOf gets every page of a list, asked for until there is an answer or ctx
// ends.
func allOf[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	return persisted(ctx, c, "listing", func() ([]T, error) { return pages[T](ctx, c, path, url.Values{}) })
}

// page gets one page, and the number of the next; 0: it is the last.
func page[T any](ctx context.Context, c *Client, path string, q url.Values) (part []T, next int, err error) {
	resp, err := c.do(ctx, http.MethodGet, path+"?"+q.Encode(), nil, &part)
	if err != nil {
		return nil, 0, err
	}
	return part, resp.NextPage, nil
}

// get gets one build with the latest attempt of each job, once.
func (c *Client) get(ctx context.Context, number int) (*Build, error) {
	path, err := c.buildPath(number)
	if err != nil {
		return nil, permanentError{err}
	}
	b := &Build{}
	if _, err := c.do(ctx, http.MethodGet, path+"?exclude_pipeline=true", nil, b); err != nil {
		return nil, err
	}
	return b, nil
}

// Build gets one build with the latest attempt of each job. It is asked for until
// there is an answer or ctx ends, or for two minutes where ctx has no deadline.
//
// Errors: [APIError], with status 404 for a build that is not there, and ctx's.
func (c *Client) Build(ctx context.Context, number int) (*Build, error) {
	ctx, stop := patient(ctx)
	defer stop()
	return persisted(ctx, c, "asking for a build", func() (*Build, error) { return c.get(ctx, number) })
}

// A Query selects builds of the pipeline. Zero fields do not.
type Query struct {
	States   []string          // Buildkite's words: "running", "finished", …
	MetaData map[string]string // "gpu": "B200_BK"; every one has to be there as it is
	Limit    int               // the newest so many; 0: all, up to 5000
}

// Builds lists builds, the newest first, with the latest attempt of each job. It
// is asked for as with [Client.Build].
//
// Errors: [APIError] and ctx's.
func (c *Client) Builds(ctx context.Context, query Query) ([]Build, error) {
	q := url.Values{"exclude_pipeline": {"true"}}
	if len(query.States) > 0 {
		q["state[]"] = query.States
	}
	for key, value := range query.MetaData {
		q.Set("meta_data["+key+"]", value)
	}
	ctx, stop := patient(ctx)
	defer stop()
	found, err := persisted(ctx, c, "listing builds", func() (found []Build, err error) {
		if query.Limit > 0 && query.Limit <= perPage {
			q.Set("per_page", strconv.Itoa(query.Limit))
			found, _, err = page[Build](ctx, c, c.path+"/builds", q)
			return found, err
		}
		return c.list(ctx, q)
	})
	// How filters match and combine is not documented.
	kept := slices.DeleteFunc(found, func(b Build) bool {
		for key, value := range query.MetaData {
			if b.MetaData[key] != value {
				return true
			}
		}
		return false
	})
	if query.Limit > 0 && len(kept) > query.Limit {
		kept = kept[:query.Limit]
	}
	return kept, err
}

// builds is lookup, until it is answered or ctx ends.
func (c *Client) builds(ctx context.Context, runID string, since time.Time) ([]Build, error) {
	return persisted(ctx, c, "looking for the build of a run", func() ([]Build, error) { return c.lookup(ctx, runID, since) })
}

// lookup lists the builds of one run that were made after since, the oldest
// first.
func (c *Client) lookup(ctx context.Context, runID string, since time.Time) ([]Build, error) {
	q := url.Values{
		"meta_data[" + metaRunID + "]": {runID},
		"exclude_jobs":                 {"true"},
		"exclude_pipeline":             {"true"},
	}
	if !since.IsZero() {
		q.Set("created_from", since.UTC().Format(time.RFC3339))
	}
	builds, err := c.list(withUse(ctx, useLookup), q)
	if err != nil {
		return nil, err
	}
	// Whether the filter matches parts of values is not documented.
	builds = slices.DeleteFunc(builds, func(b Build) bool { return b.MetaData[metaRunID] != runID })
	slices.SortFunc(builds, func(a, b Build) int { return a.Number - b.Number })
	return builds, nil
}

// A Queue is a cluster queue.
type Queue struct {
	ID         string
	Key        string // what steps name, "h100"
	Cluster    string `json:"-"`               // name of its cluster
	Paused     bool   `json:"dispatch_paused"` // nothing is dispatched to agents
	PausedNote string `json:"dispatch_paused_note"`
}

// Connected is the state of an agent that is there and not stopping.
const Connected = "connected"

// An Agent is an agent that Buildkite knows to be there: connected, or
// stopping after its job.
type Agent struct {
	ID         string
	Name       string
	State      string   `json:"connection_state"` // [Connected] or "stopping"
	Tags       []string `json:"meta_data"`        // "key=value", queue among them
	Queue      string   // key; empty outside a cluster
	QueueID    string   `json:"cluster_queue_id"`
	Paused     bool     // takes no jobs
	PausedNote string   `json:"paused_note"`
	Job        *struct {
		ID string
	}
}

// Busy reports whether the agent has a job.
func (a *Agent) Busy() bool { return a.Job != nil }

// On reports whether the agent serves q. A key may exist in several clusters, so
// ids decide where there are any.
func (a *Agent) On(q *Queue) bool {
	if a.QueueID != "" {
		return a.QueueID == q.ID
	}
	if a.Queue != "" {
		return a.Queue == q.Key
	}
	return slices.Contains(a.Tags, "queue="+q.Key)
}

// Queues lists the queues of all clusters of the organization. It takes one
// request and one for each cluster, and the scope read_clusters.
//
// Errors: [APIError], 403 where the scope is missing; [RateLimitError].
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	type cluster struct{ ID, Name string }
	ctx, stop := patient(ctx)
	defer stop()
	clusters, err := allOf[cluster](ctx, c, c.orgPath()+"/clusters")
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var all []Queue
	for _, cl := range clusters {
		if !idPattern.MatchString(cl.ID) {
			return nil, fmt.Errorf("listing clusters: got the id %q from the API, want letters, digits and -", text.Line(cl.ID, 60))
		}
		queues, err := allOf[Queue](ctx, c, c.orgPath()+"/clusters/"+cl.ID+"/queues")
		if err != nil {
			return nil, fmt.Errorf("listing the queues of cluster %s: %w", text.Line(cl.Name, 60), err)
		}
		for i := range queues {
			queues[i].Cluster = cl.Name
		}
		all = append(all, queues...)
	}
	return all, nil
}

// Agents lists the organization's agents, connected and stopping ones: the API
// lists no others. It takes a request for each hundred and the scope
// read_agents.
//
// Errors: as for [Client.Queues].
func (c *Client) Agents(ctx context.Context) ([]Agent, error) {
	ctx, stop := patient(ctx)
	defer stop()
	agents, err := allOf[Agent](ctx, c, c.orgPath()+"/agents")
	if err != nil {
		return nil, fmt.Errorf("listing agents: %w", err)
	}
	return agents, nil
}

// orgPath returns "v2/organizations/{org}".
func (c *Client) orgPath() string {
	org, _, _ := strings.Cut(c.path, "/pipelines/")
	return org
}

const logTailSize = 4096 // bytes

// logTail returns the last lines of a job's log without escape sequences.
func (c *Client) logTail(ctx context.Context, number int, job string) (string, error) {
	tail, err := c.rawTail(ctx, number, job, logTailSize)
	return strings.TrimSpace(text.Lines(tail)), err
}

// rawTail returns the last size bytes of a job's log as they are.
func (c *Client) rawTail(ctx context.Context, number int, job string, size int) (string, error) {
	path, err := c.buildPath(number, "jobs", job, "log")
	if err != nil {
		return "", err
	}
	req, err := c.api.NewRequest(http.MethodGet, path, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "text/plain")
	req.Header.Set("Range", fmt.Sprintf("bytes=-%d", size))
	var buf bytes.Buffer
	resp, err := c.api.Do(req.WithContext(ctx), &buf)
	if err != nil {
		err = c.explain(req, resp, &buf, err)
		if status(err) == http.StatusRequestedRangeNotSatisfiable { // empty
			return "", nil
		}
		return "", err
	}
	tail := buf.String()
	return tail[max(0, len(tail)-size):], nil // a server may ignore Range
}

// commandLine is the agent's line before a job's command, behind its time stamp
// in Unix milliseconds.
var commandLine = regexp.MustCompile(`\x1b_bk;t=([0-9]+)\x07~~~ Running (?:commands|script)`)

// Spans returns where the time of a run went. Without the log of its bootstrap, such
// as without the scope read_build_logs, it is less exact.
func (c *Client) Spans(ctx context.Context, r *Report) []Span {
	var began time.Time
	if jobs := r.Timeline.Jobs; len(jobs) >= 2 {
		began, _ = c.commandAt(ctx, r.Build, jobs[0].ID)
	}
	return r.spans(began)
}

// commandAt returns when a job's command began, by the agent's clock, as its
// log says. The log must be short: only its last 64 KiB are read.
//
// Errors: the API's (the scope is read_build_logs); a log that does not say.
func (c *Client) commandAt(ctx context.Context, number int, job string) (time.Time, error) {
	tail, err := c.rawTail(ctx, number, job, 64<<10)
	if err != nil {
		return time.Time{}, err
	}
	found := commandLine.FindStringSubmatch(tail)
	if found == nil {
		return time.Time{}, fmt.Errorf("job %s: its log does not say when the command began", job)
	}
	ms, err := strconv.ParseInt(found[1], 10, 64)
	return time.UnixMilli(ms), err
}
