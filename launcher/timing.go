package main

import (
	"fmt"
	"io"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema"
)

// printTiming writes where the time went, and how many requests it took to
// know. Jobs are timed by Buildkite's clock, the evaluation's phases by the
// machine's, the rest by ours; only times of one clock are subtracted, but for
// the command's, which is its agent's.
//
// command is when the first job's command began; zero: unknown.
func printTiming(w io.Writer, report *launcher.Report, command time.Time, n launcher.Calls) {
	l := report.Timeline
	row := func(name string, d time.Duration, note string) {
		fmt.Fprintf(w, "%-10s %8.3f s  %s\n", name, d.Seconds(), note)
	}
	row("create", l.Created.Sub(l.Submitted), "the build, by REST")
	accounted := l.Created.Sub(l.Submitted)
	if len(l.Jobs) > 0 {
		evaluation := l.Jobs[len(l.Jobs)-1]
		if len(l.Jobs) > 1 {
			first := l.Jobs[0]
			row("pick-up", first.Started.Sub(first.Runnable), first.Step+": ready until an agent starts it")
			if command.After(first.Started) && command.Before(evaluation.Created) {
				row("bootstrap", command.Sub(first.Started), "agent, until the command begins")
				row("upload", evaluation.Created.Sub(command), "kbgen, agent, until "+evaluation.Step+" exists")
			} else {
				row("bootstrap", evaluation.Created.Sub(first.Started), "agent, kbgen, upload, until "+evaluation.Step+" exists")
			}
			accounted += evaluation.Created.Sub(first.Runnable)
		}
		job := evaluation.Finished.Sub(evaluation.Started)
		judged := judging(report.Result)
		row("pick-up", evaluation.Started.Sub(evaluation.Runnable), evaluation.Step+": ready until an agent starts it")
		row("evaluation", judged, "phases of the submission")
		row("artifact", job-judged, "agent, kbrun, result.json, annotation")
		accounted += evaluation.Finished.Sub(evaluation.Created)
	}
	row("notice", max(0, l.Finished.Sub(l.Submitted)-accounted), "until a poll sees the end")
	row("fetch", l.Fetched.Sub(l.Finished), "list artifacts, download, check")
	row("total", l.Fetched.Sub(l.Submitted), "submitted until checked")
	fmt.Fprintf(w, "REST calls: %d: %d create, %d polls, %d artifact lists, %d downloads, %d other\n",
		n.Total, n.Creates, n.Polls, n.Artifacts, n.Downloads, n.Total-n.Creates-n.Polls-n.Artifacts-n.Downloads)
}

// judging is how long the phases of a result took, from the first's start to
// the last's end.
func judging(r *schema.Result) time.Duration {
	if len(r.Runs) == 0 {
		return 0
	}
	return r.Runs[len(r.Runs)-1].End.Sub(r.Runs[0].Start)
}
