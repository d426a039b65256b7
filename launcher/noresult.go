package launcher

import (
	"context"
	"fmt"
	"strings"

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
