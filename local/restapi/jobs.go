package restapi

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/local/document"
	"github.com/gpu-mode/kbgen/local/engine"
)

// job returns the job that the path names, which must belong to the path's
// build when it names one.
func (c *call) job() (engine.Job, error) {
	j, err := c.engine.Job(c.r.PathValue("job"))
	if err != nil {
		return engine.Job{}, err
	}
	if c.r.PathValue("pipeline") == "" {
		return j, nil
	}
	b, err := c.build()
	if err != nil {
		return engine.Job{}, err
	}
	if j.BuildID != b.ID {
		return engine.Job{}, engine.Refuse(engine.NotFound, "No job found")
	}
	return j, nil
}

func (c *call) getJob() error { return ok(c, c.view.Job)(c.job()) }

func (c *call) retryJob(j engine.Job) error {
	return ok(c, c.view.Job)(c.engine.RetryJob(j.ID))
}

func (c *call) reprioritizeJob(j engine.Job) error {
	f := c.form()
	priority, given := take[int](f, "priority")
	if f.err == nil && !given {
		return engine.Refuse(engine.BadRequest, "Priority must be an integer")
	}
	if err := c.check(f); err != nil {
		return err
	}
	return ok(c, c.view.Job)(c.engine.Reprioritize(j.ID, priority))
}

// unblockJob answers a block or input step. Several choices of a select come as a
// list.
func (c *call) unblockJob(j engine.Job) error {
	f := c.form()
	given, _ := take[map[string]any](f, "fields")
	answers := map[string][]string{}
	for key, value := range given {
		switch value := value.(type) {
		case string:
			answers[key] = []string{value}
		case []any:
			for _, item := range value {
				text, ok := item.(string)
				if !ok {
					f.refuse("fields", "invalid")
				}
				answers[key] = append(answers[key], text)
			}
		default:
			f.refuse("fields", "invalid")
		}
	}
	who := c.who.User
	if id, named := take[string](f, "unblocker"); named && id != who.ID {
		return engine.Refuse(engine.Invalid, "Unblocker is not a valid user id for this organization")
	}
	if err := c.check(f); err != nil {
		return err
	}
	return ok(c, c.view.Job)(c.engine.Unblock(j.ID, answers, who))
}

func (c *call) jobEnv(j engine.Job) error {
	return ok(c, func(env map[string]string) any { return map[string]any{"env": env} })(c.engine.JobEnv(j.ID))
}

var jobStates = []string{
	"pending", "waiting", "waiting_failed", "blocked", "blocked_failed", "unblocked", "unblocked_failed", "scheduled",
	"assigned", "accepted", "running", "passed", "failed", "timed_out", "timing_out", "canceled", "canceling",
	"skipped", "broken", "expired", "limited",
}

// A jobPage is one page of a listing with cursors. A cursor is the id of the
// job at the edge of a page.
type jobPage struct {
	Items []document.Job    `json:"items"`
	Links map[string]string `json:"links"`
}

func (c *call) listJobs(b engine.Build) error {
	q := c.r.URL.Query()
	shown, err := jobFilter(q)
	if err != nil {
		return err
	}
	size := defaultPerPage
	if text := q.Get("per_page"); text != "" {
		if size, err = strconv.Atoi(text); err != nil || size < 1 {
			return engine.Refuse(engine.BadRequest, "per_page must be an integer from 1 to 100")
		}
		size = min(size, maxPerPage)
	}
	after, before := q.Get("after"), q.Get("before")
	edge := slices.IndexFunc(b.Jobs, func(j engine.Job) bool { return j.ID == after+before })
	switch {
	case after != "" && before != "":
		return engine.Refuse(engine.BadRequest, "after and before exclude each other")
	case after+before != "" && edge < 0:
		return engine.Refuse(engine.BadRequest, "The cursor is not valid")
	}
	// The cursor's job may be one that the filter no longer shows.
	jobs := shown(b.Jobs)
	from := len(shown(b.Jobs[:edge+1]))
	to := min(from+size, len(jobs))
	if before != "" {
		to = len(shown(b.Jobs[:edge]))
		from = max(to-size, 0)
	}
	link := func(cursor, id string) string {
		next := maps.Clone(q)
		next.Del("after")
		next.Del("before")
		next.Set("per_page", strconv.Itoa(size))
		if id != "" {
			next.Set(cursor, id)
		}
		return c.base() + c.r.URL.EscapedPath() + "?" + next.Encode()
	}
	out := jobPage{Items: render(jobs[from:to], c.view.Job), Links: map[string]string{"self": link("after", after)}}
	if before != "" {
		out.Links["self"] = link("before", before)
	}
	if to > 0 && to < len(jobs) {
		out.Links["next"] = link("after", jobs[to-1].ID)
	}
	if from > 0 && from < len(jobs) {
		out.Links["prev"] = link("before", jobs[from].ID)
	}
	return c.ok(out)
}

// jobFilter applies state[] and include_retried_jobs, which is true when
// absent, other than on the builds endpoints.
func jobFilter(q url.Values) (func([]engine.Job) []engine.Job, error) {
	states := list(q, "state")
	for _, s := range states {
		if !slices.Contains(jobStates, s) {
			return nil, engine.Refuse(engine.BadRequest, "state %q is not known, want one of %s", s, strings.Join(jobStates, ", "))
		}
	}
	current := q.Get("include_retried_jobs") != "" && !isTrue(q, "include_retried_jobs")
	return func(jobs []engine.Job) []engine.Job {
		return slices.DeleteFunc(slices.Clone(jobs), func(j engine.Job) bool {
			return current && j.RetriedIn != "" || states != nil && !slices.Contains(states, string(j.State))
		})
	}, nil
}
