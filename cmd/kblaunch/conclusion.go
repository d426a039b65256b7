package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict"
)

// A conclusion is what became of one run.
type conclusion struct {
	gpu, queue, mode, ranking string
	runID                     string
	build                     int
	url                       string

	detached bool
	report   *launcher.Report // nil without a result
	err      error            // why there is none
}

// found takes over what a report tells of the run.
func (e *conclusion) found(r *launcher.Report) {
	if r != nil {
		e.runID, e.build, e.url = r.RunID, r.Build, r.BuildURL
		e.gpu, e.queue = cmp.Or(e.gpu, r.Result.GPUType), cmp.Or(e.queue, r.Result.Queue)
		return
	}
	if uncertain, ok := errors.AsType[*launcher.UncertainError](e.err); ok {
		e.runID = uncertain.RunID
	}
}

// verdict is the result prepared for its readers, nil without one.
func (e *conclusion) verdict() *verdict.Verdict {
	switch {
	case e.report == nil:
		return nil
	case e.ranking == "":
		return verdict.Of(e.report.Result)
	}
	return verdict.OfRanked(e.report.Result, e.ranking)
}

// canceled reports whether somebody ended the build before it was judged. What
// the job itself wrote of that, a fault of the machine that is tried again, is
// not so.
func (e *conclusion) canceled() bool {
	return e.report != nil && e.report.Canceled && !e.verdict().Judged
}

// unjudged is why a result is no verdict.
func (e *conclusion) unjudged() error {
	if e.canceled() {
		return fmt.Errorf("build %d (%s) was canceled before it was judged", e.build, e.url)
	}
	return fmt.Errorf("no verdict on the submission, build %s: %s", e.url, e.verdict().Words())
}

// note says what is odd about a result that is believed all the same.
func (e *conclusion) note(stderr io.Writer) {
	if e.report != nil && e.report.Result.GPUType == "" {
		fmt.Fprintf(stderr, "kblaunch: note: the result names no GPU type: an older kbrun judged it, and nothing says that its machine was a %s\n", e.gpu)
	}
}

// status is the exit status of this run alone.
func (e *conclusion) status() int {
	v := e.verdict()
	switch {
	case e.err != nil:
		return exitTrouble
	case v == nil || v.Passed: // detached
		return cli.ExitDone
	case !v.Judged:
		return exitTrouble
	}
	return cli.ExitFailed
}

// outputFlags say in which form a command prints.
type outputFlags struct {
	JSON   bool `name:"json" xor:"form" help:"print one document, however a run ends (kbgen schema submission)"`
	Events bool `xor:"form" help:"print JSON lines: phases as they come, then the conclusions"`
}

// What --json prints, and each line of --events.
type (
	documentJSON struct {
		Runs       []runJSON `json:"runs" jsonschema:"one for each GPU type, in the order given"`
		ExitStatus int       `json:"exit_status" jsonschema:"0 all passed, 1 one did not, 3 trouble: one has no verdict"`
	}
	runJSON struct {
		GPUType    string          `json:"gpu_type,omitempty"`
		Queue      string          `json:"queue,omitempty"`
		Mode       string          `json:"mode,omitempty"`
		RunID      string          `json:"run_id,omitempty" jsonschema:"finds the run again"`
		Build      int             `json:"build,omitempty" jsonschema:"number"`
		BuildURL   string          `json:"build_url,omitempty"`
		Conclusion string          `json:"conclusion" jsonschema:"passed, failed, no-verdict, trouble or detached"`
		Error      string          `json:"error,omitempty" jsonschema:"why there is no verdict"`
		Log        []string        `json:"log,omitempty" jsonschema:"the end of the log of the job that failed"`
		Score      *verdict.Ranked `json:"score,omitempty"`
		Verdict    json.RawMessage `json:"verdict,omitempty" jsonschema:"the result prepared for readers: outcome, cases, times"`
		Result     json.RawMessage `json:"result,omitempty" jsonschema:"result.json as it came"`
	}
	dryRunJSON struct {
		Planned []plannedJSON `json:"planned" jsonschema:"one build for each GPU type"`
	}
	plannedJSON struct {
		GPUType      string `json:"gpu_type"`
		Queue        string `json:"queue"`
		Mode         string `json:"mode"`
		RunID        string `json:"run_id,omitempty" jsonschema:"none: one by chance"`
		PayloadBytes int    `json:"payload_bytes" jsonschema:"as it travels"`
		Sealed       bool   `json:"sealed"`
		Organization string `json:"organization"`
		Pipeline     string `json:"pipeline"`
		Branch       string `json:"branch"`
		Commit       string `json:"commit"`
	}
	eventJSON struct {
		Time     string   `json:"time" jsonschema:"RFC 3339"`
		Event    string   `json:"event" jsonschema:"phase, while a run goes on, or end"`
		RunID    string   `json:"run_id,omitempty"`
		Build    int      `json:"build,omitempty"`
		BuildURL string   `json:"build_url,omitempty"`
		Phase    string   `json:"phase,omitempty" jsonschema:"creating, waiting, running or fetching"`
		State    string   `json:"state,omitempty" jsonschema:"Buildkite's word for the build"`
		Seconds  float64  `json:"elapsed_seconds" jsonschema:"since kblaunch began"`
		Run      *runJSON `json:"run,omitempty" jsonschema:"of an end"`
	}
)

// json is the conclusion as --json prints it.
func (e *conclusion) json(ctx context.Context) runJSON {
	out := runJSON{GPUType: e.gpu, Queue: e.queue, Mode: e.mode, RunID: e.runID, Build: e.build, BuildURL: e.url}
	v := e.verdict()
	switch {
	case e.err != nil:
		out.Conclusion, out.Error = "trouble", trouble(ctx, e.err).Error()
		if none, ok := errors.AsType[*launcher.NoResultError](e.err); ok && none.Log != "" {
			out.Log = strings.Split(none.Log, "\n")
		}
	case e.detached:
		out.Conclusion = "detached"
	case v.Passed:
		out.Conclusion = "passed"
	case v.Judged:
		out.Conclusion = "failed"
	default:
		out.Conclusion = "no-verdict"
		out.Error = e.unjudged().Error()
	}
	if v != nil {
		out.Result = e.report.Raw
		out.Verdict, _ = json.Marshal(v) // a verdict can be written
		out.Score = v.Score
	}
	return out
}

// output prints what becomes of runs, in the form that was asked for.
type output struct {
	env   *cli.Env
	flags *outputFlags
	began time.Time
	lost  error // the first event that could not be written
}

func newOutput(env *cli.Env, flags *outputFlags) *output {
	if flags.Events {
		// A reader that goes away ends neither the run nor the waiting for it: what
		// was begun comes to its end, and the exit status says what was not read.
		signal.Ignore(syscall.SIGPIPE)
	}
	return &output{env: env, flags: flags, began: time.Now()}
}

// event prints one line of --events.
func (o *output) event(e launcher.Event) {
	if o.flags.Events {
		o.line(eventJSON{Event: "phase", RunID: e.RunID, Build: e.Build, BuildURL: e.BuildURL, Phase: string(e.Phase), State: e.State})
	}
}

func (o *output) line(e eventJSON) {
	now := time.Now()
	e.Time, e.Seconds = now.UTC().Format(time.RFC3339Nano), now.Sub(o.began).Seconds()
	enc := json.NewEncoder(o.env.Stdout)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); o.lost == nil {
		o.lost = err
	}
}

// failed is an end before there was a run to wait for. It gives the document or
// the event of an end, too, and returns err.
func (o *output) failed(ctx context.Context, run string, err error) error {
	e := &conclusion{runID: text.Line(run, 200), err: err}
	if number, ok := buildNumber(run); ok {
		e.runID, e.build = "", number
	}
	if !o.flags.JSON && !o.flags.Events || errors.As(err, new(*cli.UsageError)) {
		return err
	}
	if printErr := o.print(ctx, []*conclusion{e}, exitTrouble); printErr != nil {
		return &cli.ExitError{Status: exitTrouble, Err: printErr}
	}
	return err
}

// end prints how all runs ended, and turns it into an exit status: trouble
// before a verdict against a submission before a pass.
func (o *output) end(ctx context.Context, all []*conclusion) error {
	status := cli.ExitDone
	for _, e := range all {
		status = max(status, e.status())
	}
	if err := o.print(ctx, all, status); err != nil {
		return &cli.ExitError{Status: exitTrouble, Err: err}
	}
	var errs []error
	for _, e := range all {
		err := e.err
		if v := e.verdict(); err == nil && v != nil && !v.Judged {
			err = e.unjudged()
		}
		if err == nil {
			continue
		}
		o.logOf(e)
		if len(all) > 1 {
			err = fmt.Errorf("%s: %w", e.gpu, err)
		}
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return trouble(ctx, errors.Join(errs...))
	}
	if status == cli.ExitDone {
		return nil
	}
	return &cli.ExitError{Status: status}
}

func (o *output) print(ctx context.Context, all []*conclusion, status int) error {
	if o.flags.Events {
		for _, e := range all {
			run := e.json(ctx)
			o.line(eventJSON{Event: "end", RunID: e.runID, Build: e.build, BuildURL: e.url, Run: &run})
		}
		return o.lost
	}
	if o.flags.JSON {
		doc := documentJSON{ExitStatus: status, Runs: []runJSON{}}
		for _, e := range all {
			doc.Runs = append(doc.Runs, e.json(ctx))
		}
		return cli.PrintJSON(o.env.Stdout, doc)
	}
	var b strings.Builder
	for _, e := range all {
		if e.report == nil && !e.detached || e.canceled() {
			continue // its error is told of
		}
		if len(all) > 1 {
			fmt.Fprintf(&b, "== %s ==\n", e.gpu)
		}
		if e.detached {
			fmt.Fprintf(&b, "run %s\nbuild %s\n", e.runID, e.url)
			continue
		}
		v := e.verdict()
		fmt.Fprintf(&b, "%s\nbuild %s\n", v.Text(), e.url)
	}
	_, err := io.WriteString(o.env.Stdout, b.String())
	return err
}

// logOf prints the end of the log of a job that left no result.
func (o *output) logOf(e *conclusion) {
	var none *launcher.NoResultError
	if o.flags.JSON || o.flags.Events || !errors.As(e.err, &none) || none.Log == "" {
		return
	}
	fmt.Fprintf(o.env.Stderr, "kblaunch: the end of the log of job %s:\n", none.LogOf)
	for line := range strings.SplitSeq(none.Log, "\n") {
		fmt.Fprintf(o.env.Stderr, "  | %s\n", line)
	}
}

// dryRun prints what would be sent.
func (o *output) dryRun(plan []plannedJSON) error {
	if o.flags.JSON || o.flags.Events {
		return cli.PrintJSON(o.env.Stdout, dryRunJSON{plan})
	}
	for _, p := range plan {
		sealed := ""
		if p.Sealed {
			sealed = ", sealed"
		}
		run := cmp.Or(p.RunID, "by chance")
		_, err := fmt.Fprintf(o.env.Stdout, "%s: a build of %s/%s (%s, %s) for queue %s, mode %s, run id %s, payload of %d bytes%s\n",
			p.GPUType, p.Organization, p.Pipeline, p.Branch, p.Commit, p.Queue, p.Mode, run, p.PayloadBytes, sealed)
		if err != nil {
			return err
		}
	}
	return nil
}
