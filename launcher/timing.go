package launcher

import (
	"time"
)

// A Span is one stretch of the time between submission and result.
type Span struct {
	Name     string // "pick-up"; not unique
	Duration time.Duration
	Note     string // what happens in it
}

// spans says where the time of a submission went: the stretches in their order
// and the total last. Jobs are timed by Buildkite's clock, the evaluation's
// phases by the machine's, the rest by ours; only times of one clock are
// subtracted, but for the command's, which is its agent's.
//
// command is when the first job's command began, see [Client.commandAt]; zero:
// unknown.
func (r *Report) spans(command time.Time) []Span {
	var spans []Span
	add := func(name string, d time.Duration, note string) { spans = append(spans, Span{name, d, note}) }
	l := r.Timeline
	accounted := max(0, l.Created.Sub(l.Submitted)) // an adopted build was there before
	add("create", accounted, "the build, by REST")
	if len(l.Jobs) > 0 {
		evaluation := l.Jobs[len(l.Jobs)-1]
		if len(l.Jobs) > 1 {
			first := l.Jobs[0]
			add("pick-up", first.Started.Sub(first.Runnable), first.Step+": ready until an agent starts it")
			if command.After(first.Started) && command.Before(evaluation.Created) {
				add("bootstrap", command.Sub(first.Started), "agent, until the command begins")
				add("upload", evaluation.Created.Sub(command), "kbgen, agent, until "+evaluation.Step+" exists")
			} else {
				add("bootstrap", evaluation.Created.Sub(first.Started), "agent, kbgen, upload, until "+evaluation.Step+" exists")
			}
			accounted += evaluation.Created.Sub(first.Runnable)
		}
		job := evaluation.Finished.Sub(evaluation.Started)
		judged := r.judging()
		add("pick-up", evaluation.Started.Sub(evaluation.Runnable), evaluation.Step+": ready until an agent starts it")
		add("evaluation", judged, "phases of the submission")
		add("artifact", job-judged, "agent, kbrun, result.json, annotation")
		accounted += evaluation.Finished.Sub(evaluation.Created)
	}
	add("notice", max(0, l.Finished.Sub(l.Submitted)-accounted), "until a poll sees the end")
	add("fetch", l.Fetched.Sub(l.Finished), "list artifacts, download, check")
	add("total", l.Fetched.Sub(l.Submitted), "submitted until checked")
	return spans
}

// judging is how long the phases of the result took, from the first's start to
// the last's end.
func (r *Report) judging() time.Duration {
	runs := r.Result.Runs
	if len(runs) == 0 {
		return 0
	}
	return runs[len(runs)-1].End.Sub(runs[0].Start)
}
