package engine

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/gpu-mode/kbgen/local/steps"
	"github.com/gpu-mode/kbgen/schema/text"
)

// maxTriggers bounds how many builds may start each other in a row: a pipeline
// that triggers itself would never end.
const maxTriggers = 10

// maxFamily bounds how many builds one build may start in all, by way of those
// that it starts: several that each start several soon are too many.
const maxFamily = 300

// acceptsTriggers checks that there are pipelines for a document's trigger steps.
func (e *Engine) acceptsTriggers(b *build, doc *steps.Document) error {
	for _, s := range doc.All() {
		switch {
		case s.Kind != steps.TriggerStep:
		case e.pipelines[s.Trigger.Pipeline] == nil:
			return Refuse(Invalid, "Step %s triggers the pipeline %q, which is not there: kblocal starts builds of its own pipelines only", describeStep(s), s.Trigger.Pipeline)
		case b.depth >= maxTriggers:
			return Refuse(Invalid, "Step %s would be the %dth build in a row that another one triggers, want at most %d", describeStep(s), b.depth+1, maxTriggers)
		}
	}
	return nil
}

// trigger starts the build of a trigger step. The step ends at once when it is
// asynchronous, else with the build.
func (e *Engine) trigger(j *job) {
	t := j.Step.Trigger
	now := e.now()
	j.RunnableAt, j.StartedAt = now, now
	if family := j.build.family; *family >= maxFamily {
		j.BrokenReason = fmt.Sprintf("%d builds have come of one already, which is the limit", maxFamily)
		e.endTrigger(j, JobFailed)
		return
	}
	*j.build.family++
	env := cloneMap(t.Env)
	if j.ParallelTotal > 0 {
		env["BUILDKITE_PARALLEL_JOB"], env["BUILDKITE_PARALLEL_JOB_COUNT"] = strconv.Itoa(j.ParallelIndex), strconv.Itoa(j.ParallelTotal)
	}
	child, err := e.createBuild(t.Pipeline, NewBuild{
		Message: cmp.Or(t.Message, j.Label, "Triggered from "+j.Pipeline),
		Commit:  t.Commit, Branch: t.Branch, Source: "trigger_job",
		Author: j.build.Author, Creator: j.build.Creator,
		Env: env, MetaData: t.MetaData, triggeredFrom: j,
	})
	if err != nil {
		j.BrokenReason = text.Line("the build could not be started: "+err.Error(), 300)
		e.endTrigger(j, JobFailed)
		return
	}
	j.Triggered = &Trigger{BuildID: child.ID, Pipeline: child.Pipeline, Number: child.Number}
	if t.Async {
		e.endTrigger(j, JobPassed)
		return
	}
	child.cause = j
	e.setJob(j, JobRunning)
	if child.Over() { // at once: all its steps are filtered out
		e.ended = append(e.ended, child)
	}
}

func (e *Engine) endTrigger(j *job, state JobState) {
	j.SoftFailed = state == JobFailed && j.Step.SoftFail.All
	e.end(j, state)
}

// settleTriggers ends the trigger steps whose builds have ended, and advances
// their builds. It is called where builds have been advanced already.
func (e *Engine) settleTriggers() {
	for len(e.ended) > 0 {
		child := e.ended[0]
		e.ended = e.ended[1:]
		j := child.cause
		if j == nil || j.State.Finished() || !child.Over() && child.State != BuildPassed {
			continue
		}
		state := JobFailed
		if child.State == BuildPassed {
			state = JobPassed
		}
		e.endTrigger(j, state)
		e.advance(j.build)
	}
}

// note records what a document would notify.
func (b *build) note(doc *steps.Document) {
	notices := doc.Notify
	for _, s := range doc.All() {
		notices = append(notices, s.Notify...)
	}
	for _, n := range notices {
		b.Notify = append(b.Notify, string(n))
	}
}
