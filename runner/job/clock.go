package job

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

const (
	// deadlineMargin is kept of a step's timeout for what comes after the
	// evaluation: killing, writing, uploading.
	deadlineMargin = 30 * time.Second
	// lateLimit is how long after its deadline, and cancelLimit how long after
	// a signal, the evaluation may take to end what it started. Then kbrun
	// ends without it; the agent kills it ten seconds after a signal.
	lateLimit   = 15 * time.Second
	cancelLimit = 6 * time.Second
)

// A clock nests kbrun's deadlines below the step's timeout: the evaluation
// ends at deadline, kbrun gives it up at late, and everything is told by end.
// All are zero when nothing limits the job.
type clock struct{ start, deadline, late, end time.Time }

// newClock takes the deadline that was asked for, or the step's timeout in
// minutes, "false" without one, whichever is first.
func newClock(start time.Time, limit time.Duration, env Env) clock {
	c := clock{start: start}
	if minutes, err := strconv.Atoi(env.Getenv("BUILDKITE_TIMEOUT")); err == nil && minutes > 0 {
		step := time.Duration(minutes)*time.Minute - deadlineMargin
		if limit <= 0 || step < limit {
			limit = step
		}
	}
	if limit <= 0 {
		return c
	}
	c.deadline = start.Add(limit)
	c.late = c.deadline.Add(lateLimit)
	c.end = c.deadline.Add(deadlineMargin - 3*time.Second)
	return c
}

// left is how much of limit there is before the end.
func (c clock) left(limit time.Duration) time.Duration {
	if c.end.IsZero() {
		return limit
	}
	return max(time.Second, min(limit, time.Until(c.end)))
}

// lastUpload is when the last try of an upload may begin: what else is told of
// the result needs the time after it.
func (c clock) lastUpload() time.Time {
	if c.end.IsZero() { // nothing limits the job, which may hold the machine for ever
		return time.Now().Add(uploadLimit)
	}
	return c.end.Add(-tellReserve)
}

// tellReserve is kept of a job's time for what follows the upload.
const tellReserve = 5 * time.Second

// guarded calls judge and returns a result whatever happens: a panic becomes
// one, and a judge that does not end in time is left behind. trusted reports
// that judge has returned, so that nothing of a submission is alive.
func guarded(ctx context.Context, c clock, runID string, stderr io.Writer, judge func(context.Context) *schema.Result) (r *schema.Result, trusted bool) {
	done := make(chan *schema.Result, 1)
	go func() { // ends with judge, or with the process
		defer func() {
			if p := recover(); p != nil {
				fmt.Fprintf(stderr, "kbrun: panic: %s\n%s", Shown(fmt.Sprint(p)), debug.Stack())
				done <- nil
			}
		}()
		done <- judge(ctx)
	}()
	var late <-chan time.Time // never ready without a deadline
	if !c.late.IsZero() {
		late = time.After(time.Until(c.late))
	}
	canceled := context.Background()
	if ctx.Done() != nil {
		var stop context.CancelFunc
		canceled, stop = context.WithCancel(context.Background())
		defer stop()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(cancelLimit, stop) })()
	}
	select {
	case r := <-done:
		if r == nil {
			return blank(runID, schema.OutcomeRunner, "kbrun panicked; the job's log has the place"), false
		}
		return r, true
	case <-late:
		return blank(runID, schema.OutcomeMachine, fmt.Sprintf("the evaluation did not end within %s after its deadline", lateLimit)), false
	case <-canceled.Done():
		return blank(runID, schema.OutcomeCanceled, fmt.Sprintf("the job was ended from outside, and the evaluation did not end within %s", cancelLimit)), false
	}
}
