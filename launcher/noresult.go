package launcher

import (
	"context"
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A NoResultError is a build that ended, or cannot go on, without a result of
// this run. Log, when not empty, is the end of the failed job's log and is not
// part of Error's text.
type NoResultError struct {
	RunID    string
	Build    int
	BuildURL string
	State    string   // the build's
	Reason   string   // what the state means, where it needs saying
	Jobs     []string // each command job in words
	Foreign  []string // artifacts of the right name that are not the result
	Log      string   // printable lines
	LogOf    string   // the job it belongs to
	LogErr   error    // why there is none
}

func (e *NoResultError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "build %d (%s) is %s and left no result of run %s", e.Build, e.BuildURL, e.State, e.RunID)
	if e.Reason != "" {
		s.WriteString(": " + e.Reason)
	}
	if len(e.Jobs) > 0 {
		s.WriteString("; jobs: " + strings.Join(e.Jobs, "; "))
	}
	if len(e.Foreign) > 0 {
		s.WriteString("; found instead: " + strings.Join(e.Foreign, "; "))
	}
	if e.LogErr != nil {
		fmt.Fprintf(&s, "; no log of %s: %v", e.LogOf, e.LogErr)
	}
	return s.String()
}

// noResult explains the build as far as it can be asked about.
func (w *waiter) noResult(ctx context.Context) *NoResultError {
	if w.build.Jobs == nil && ctx.Err() == nil {
		if b, err := w.c.Build(ctx, w.build.Number); err == nil {
			b.WebURL = w.build.WebURL
			w.build = b
		}
	}
	b := w.build
	e := &NoResultError{RunID: w.r.ID, Build: b.Number, BuildURL: b.WebURL, State: b.State}
	switch {
	case b.Blocked:
		e.State = "blocked"
		e.Reason = "it waits for a person to unblock a step, which the pipeline should not have"
	case b.State == "not_run":
		e.Reason = "every step was skipped or filtered out; look at the pipeline's steps and branch filters"
	case b.State == "skipped":
		e.Reason = "another build of its branch took its place; switch off skip_queued_branch_builds for the pipeline"
	case b.State == "canceled" && b.CancelReason != "":
		e.Reason = text.Line(b.CancelReason, 200)
	}
	var failed *Job
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if j.Type != "script" {
			continue
		}
		e.Jobs = append(e.Jobs, j.describe())
		if j.State != "passed" && j.StartedAt != nil {
			failed = j
		}
	}
	if failed != nil && ctx.Err() == nil {
		e.LogOf = failed.ID
		e.Log, e.LogErr = w.c.logTail(ctx, b.Number, failed.ID)
	}
	return e
}

// inline returns the result that came with the build, in its meta-data under the
// run id, so that nothing has to be listed and fetched; nil when there is none
// that can be believed without its artifact.
//
// Meta-data is written by whoever has a job's token, as artifacts are: kbrun
// has it, what it runs has not. The value names the job that wrote it, of which
// the last attempt counts, and whose exit status has to agree: with a verdict it
// is 0. A build that passed says the same of all its jobs.
//
// Error: [WrongMachineError].
func (w *waiter) inline(ctx context.Context) (*Report, error) {
	value, _ := w.build.MetaData[schema.MetaResult(w.r.ID)].(string)
	if value == "" {
		return nil, nil
	}
	raw, job, err := schema.ParseInlineResult(value)
	var r *schema.Result
	var why string
	if err != nil {
		why = err.Error()
	} else if r, why = w.decode(ctx, raw); why == "" {
		why = w.written(r, job)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case why != "":
		w.c.log.Warn("the result in the build's meta-data is not taken: its artifact is fetched", "build", w.build.Number, "run", w.r.ID, "why", why)
		return nil, nil
	}
	if err := w.right(r); err != nil {
		return nil, err
	}
	return w.report(r, raw), nil
}

// written says why a result is not the last word of the evaluation's job.
func (w *waiter) written(r *schema.Result, job string) string {
	status := r.Outcome.ExitStatus()
	j := w.build.Evaluation(w.r.Queue)
	switch {
	case r.Outcome.Name == "":
		return "it has no outcome"
	case j == nil && w.build.State != "passed":
		return "nobody says how its job ended"
	case j == nil && status != 0:
		return "its job failed, and the build passed"
	case j != nil && j.ID != job:
		return "it is of another attempt"
	case j != nil && (j.ExitStatus == nil || *j.ExitStatus != status):
		return fmt.Sprintf("its job ended otherwise than it says, want exit status %d", status)
	}
	return ""
}
