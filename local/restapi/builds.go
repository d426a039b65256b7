package restapi

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/local/document"
	"github.com/gpu-mode/kbgen/local/engine"
)

// build returns the build that the path names, by its number.
func (c *call) build() (engine.Build, error) {
	slug, name := c.r.PathValue("pipeline"), c.r.PathValue("number")
	if number, err := strconv.Atoi(name); err == nil {
		return c.engine.Build(slug, number)
	}
	if c.opts.Lenient {
		if b, err := c.engine.BuildByID(name); err == nil && b.Pipeline == slug {
			return b, nil
		}
	}
	return engine.Build{}, engine.Refuse(engine.NotFound, "No build found")
}

func (c *call) createBuild() error {
	in, err := c.newBuild()
	if err != nil {
		return err
	}
	return shown(c, http.StatusCreated, c.changed)(c.engine.CreateBuild(c.r.PathValue("pipeline"), in))
}

// newBuild reads the body of a create: exactly the documented fields. Steps
// are not among them; they come from the pipeline.
func (c *call) newBuild() (engine.NewBuild, error) {
	f := c.form()
	in := engine.NewBuild{Source: "api", Creator: c.who.User}
	in.Commit, in.Branch = required(f, "commit"), required(f, "branch")
	in.Message, _ = take[string](f, "message")
	author, _ := take[struct{ Username, Name, Email string }](f, "author")
	in.Author = engine.Person{Username: author.Username, Name: author.Name, Email: author.Email}
	if in.Author == (engine.Person{}) {
		in.Author = c.who.User
	}
	in.Env, in.MetaData = stringMap(f, "env"), stringMap(f, "meta_data")
	for _, value := range in.MetaData {
		if len(value) > engine.MaxMetaData {
			f.refuse("meta_data", "too_long")
			break
		}
	}
	in.CleanCheckout, _ = take[bool](f, "clean_checkout")
	in.IgnoreBranchFilters, _ = take[bool](f, "ignore_pipeline_branch_filters")
	in.PullRequestID, _ = take[int](f, "pull_request_id")
	in.PullRequestBase, _ = take[string](f, "pull_request_base_branch")
	in.PullRequestRepo, _ = take[string](f, "pull_request_repository")
	in.PullRequestLabels, _ = take[[]string](f, "pull_request_labels")
	return in, c.check(f)
}

func (c *call) getBuild(b engine.Build) error {
	q := c.r.URL.Query()
	fields := buildFields(q)
	fields.Counts = true
	fields.JobStates = list(q, "job_states")
	return c.ok(c.view.Build(b, fields))
}

// buildFields reads which parts of builds to show. Superseded attempts are hidden
// by default.
func buildFields(q url.Values) document.BuildFields {
	return document.BuildFields{Jobs: !isTrue(q, "exclude_jobs"), Pipeline: !isTrue(q, "exclude_pipeline"), Retried: isTrue(q, "include_retried_jobs")}
}

func isTrue(q url.Values, name string) bool {
	v, err := strconv.ParseBool(q.Get(name))
	return err == nil && v
}

// list collects name and name[].
func list(q url.Values, name string) []string {
	return slices.DeleteFunc(append(slices.Clone(q[name]), q[name+"[]"]...), func(s string) bool { return s == "" })
}

func (c *call) listBuilds() error {
	q := c.r.URL.Query()
	filter, err := buildFilter(q)
	if err != nil {
		return err
	}
	filter.Pipeline = c.r.PathValue("pipeline")
	fields := buildFields(q)
	return listing(c, c.engine.Builds(filter), func(b engine.Build) document.Build { return c.view.Build(b, fields) })
}

// finished is a name for several states. Blocked builds have one of them.
var finished = []engine.BuildState{engine.BuildPassed, engine.BuildFailed, engine.BuildCanceled}

var buildStates = []string{
	"creating", "scheduled", "running", "passed", "failing", "failed", "blocked", "canceling", "canceled",
	"skipped", "not_run", "finished",
}

func buildFilter(q url.Values) (engine.BuildFilter, error) {
	f := engine.BuildFilter{Branches: list(q, "branch"), Commits: list(q, "commit"), Creator: q.Get("creator"), MetaData: map[string]string{}}
	for _, s := range list(q, "state") {
		switch {
		case s == "blocked":
			f.Blocked = true
		case s == "finished":
			f.States = append(f.States, finished...)
		case slices.Contains(buildStates, s):
			f.States = append(f.States, engine.BuildState(s))
		default:
			return f, engine.Refuse(engine.Invalid, "state %q is not known, want one of %s", s, strings.Join(buildStates, ", "))
		}
	}
	for name, at := range map[string]*time.Time{"created_from": &f.CreatedFrom, "created_to": &f.CreatedTo, "finished_from": &f.FinishedFrom} {
		if err := readTime(q, name, at); err != nil {
			return f, err
		}
	}
	for name, values := range q {
		if key, ok := strings.CutPrefix(name, "meta_data["); ok && strings.HasSuffix(key, "]") && len(values) > 0 {
			f.MetaData[strings.TrimSuffix(key, "]")] = values[0]
		}
	}
	return f, nil
}

func readTime(q url.Values, name string, at *time.Time) error {
	text := q.Get(name)
	if text == "" {
		return nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			*at = t
			return nil
		}
	}
	return engine.Refuse(engine.Invalid, "%s: got %q, want an ISO 8601 time", name, text)
}

// changed shows a build that a call has made or changed.
func (c *call) changed(b engine.Build) document.Build {
	return c.view.Build(b, document.BuildFields{Jobs: true, Pipeline: true})
}

func (c *call) cancelBuild(b engine.Build) error {
	return ok(c, c.changed)(c.engine.CancelBuild(b.ID))
}

func (c *call) rebuild(b engine.Build) error {
	return ok(c, c.changed)(c.engine.Rebuild(b.ID, c.who.User))
}

// retryStates are the states retry_failed_jobs takes. The stand-in has no
// expired jobs, and no way to tell soft failures from others here.
var retryStates = []string{"canceled", "expired", "failed", "soft_failed", "timed_out"}

func (c *call) retryFailedJobs(b engine.Build) error {
	f := c.form()
	names, _ := take[[]string](f, "states")
	if err := c.check(f); err != nil {
		return err
	}
	var states []engine.JobState
	for _, name := range names {
		switch {
		case !slices.Contains(retryStates, name):
			return engine.Refuse(engine.BadRequest, "states: %q is not known, want %s", name, strings.Join(retryStates, ", "))
		case name == "soft_failed" && !slices.Contains(names, "failed"):
			return engine.Refuse(engine.Invalid, "kblocal retries soft_failed jobs together with failed ones only")
		case name != "soft_failed":
			states = append(states, engine.JobState(name))
		}
	}
	b, count, err := c.engine.RetryFailedJobs(b.ID, states)
	if err != nil {
		return err
	}
	out := c.changed(b)
	out.RetriedJobsCount = &count
	c.answer(http.StatusAccepted, out)
	return nil
}
