package restapi

import (
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
	// from and to bound the page among all jobs; the cursor's job may be one
	// that the filter no longer shows.
	from, to, count := edge+1, edge+1, 0
	if before != "" {
		from, to = edge, edge
		for ; from > 0 && count < size; from-- {
			count += shown(b.Jobs[from-1])
		}
	}
	for ; before == "" && to < len(b.Jobs) && count < size; to++ {
		count += shown(b.Jobs[to])
	}
	return c.ok(c.jobPage(b.Jobs, from, to, shown, func(cursor, id string) string {
		if cursor == "" {
			return c.jobsURL(q, size, "after", after, "before", before)
		}
		return c.jobsURL(q, size, cursor, id)
	}))
}

// jobPage shows the jobs from one index to another that pass the filter, and
// links to its neighbours where there are any.
func (c *call) jobPage(all []engine.Job, from, to int, shown func(engine.Job) int, link func(cursor, id string) string) jobPage {
	hidden := func(j engine.Job) bool { return shown(j) == 0 }
	out := jobPage{
		Items: render(slices.DeleteFunc(slices.Clone(all[from:to]), hidden), c.view.Job),
		Links: map[string]string{"self": link("", "")},
	}
	visible := func(j engine.Job) bool { return shown(j) == 1 }
	if to > 0 && slices.ContainsFunc(all[to:], visible) {
		out.Links["next"] = link("after", all[to-1].ID)
	}
	if from < len(all) && slices.ContainsFunc(all[:from], visible) {
		out.Links["prev"] = link("before", all[from].ID)
	}
	return out
}

// jobFilter applies state[] and include_retried_jobs, which is true when
// absent, other than on the builds endpoints. It counts 1 for a job to show.
func jobFilter(q url.Values) (func(engine.Job) int, error) {
	states := list(q, "state")
	for _, s := range states {
		if !slices.Contains(jobStates, s) {
			return nil, engine.Refuse(engine.BadRequest, "state %q is not known, want one of %s", s, strings.Join(jobStates, ", "))
		}
	}
	current := q.Get("include_retried_jobs") != "" && !isTrue(q, "include_retried_jobs")
	return func(j engine.Job) int {
		if current && j.RetriedIn != "" || states != nil && !slices.Contains(states, string(j.State)) {
			return 0
		}
		return 1
	}, nil
}

// jobsURL is this listing with another cursor; pairs without a value are left
// out.
func (c *call) jobsURL(q url.Values, size int, cursor ...string) string {
	next := url.Values{}
	for name, values := range q {
		if name != "after" && name != "before" {
			next[name] = values
		}
	}
	next.Set("per_page", strconv.Itoa(size))
	for i := 0; i < len(cursor); i += 2 {
		if cursor[i+1] != "" {
			next.Set(cursor[i], cursor[i+1])
		}
	}
	return c.base() + c.r.URL.EscapedPath() + "?" + next.Encode()
}
