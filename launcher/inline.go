package launcher

import (
	"context"
	"fmt"

	"github.com/gpu-mode/kbgen/schema"
)

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
	j := w.build.evaluation(w.r.Queue)
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
