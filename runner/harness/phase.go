package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/runner/explain"
	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// A Run is what one phase came to.
type Run struct {
	// Process is the phase as if one tester had done all of it, and Load the
	// import of the submission, which takes the place of a warm-up.
	Process, Load judge.Process

	// Outcome is more exact than what the report says; nil: nothing is.
	Outcome      *schema.Outcome
	Explanation  *schema.Explanation
	Measurements []schema.Measurement
	// Table is what a worker says that looked at itself, in mode profile.
	Table string
}

// A phaseRun is a phase under way.
type phaseRun struct {
	s        *Session
	p        *plan.Phase
	w        *worker
	cases    []testCase
	report   report
	run      Run
	deadline time.Time     // of the cases; zero: none
	judged   time.Duration // that the task's own files took so far
	current  int           // the case under way

	echo       []time.Duration          // of an empty call, before there was a submission
	strictEcho []float64                // of a strict one, in nanoseconds
	fills      map[string]time.Duration // of filling the memory on a device, by a case's line; nil: no device
	fill       time.Duration            // of the case under way
	counted    bool                     // the call under way is one that counts
	outputs    *layout                  // of the case's last output; nil: there was none
	failed     bool
}

// A caseError is a case that failed its check: a verdict, and no reason to stop.
type caseError string

func (e caseError) Error() string { return string(e) }

// Phase runs every case of a phase with a worker of its own.
//
// Errors: *[TaskError]; the context's cause; any other is the machine's fault.
// What the submission did wrong is in the Run.
func (s *Session) Phase(ctx context.Context, p *plan.Phase) (*Run, error) {
	r := &phaseRun{s: s, p: p}
	var err error
	if r.cases, err = s.rules.readCases(p, s.o.Payload); err != nil {
		return nil, &TaskError{err.Error()}
	}
	if r.w, err = s.startWorker(ctx, p); err != nil {
		if run := s.notProfiled(p); run != nil && ctx.Err() == nil {
			return run, nil
		}
		return nil, err
	}
	begun := time.Now()
	err = r.all(ctx)
	if p.Profile != nil {
		if leaveErr := r.leave(ctx); err == nil {
			err = leaveErr
		}
	}
	took := time.Since(begun)
	endErr := r.w.end(ctx)
	r.keepOutput(took)
	if p.Profile != nil {
		endErr = errors.Join(endErr, r.keepProfiler())
	}
	if err = r.settle(ctx, err); err == nil {
		err = endErr
	}
	if err != nil {
		return nil, err
	}
	return &r.run, nil
}

// keepOutput enters what the worker printed and took. With a secret seed it is
// no more than that too much was printed: the seed could be in it.
func (r *phaseRun) keepOutput(took time.Duration) {
	stdout, stderr := r.w.stdout.Stream, r.w.stderr.Stream
	if r.s.o.Payload.Seed != nil {
		stdout, stderr = withheld(stdout), withheld(stderr)
	}
	r.run.Process.Stdout, r.run.Process.Stderr = stdout, stderr
	r.run.Load.Marked = r.w.stdout.Seen
	r.run.Load.Stdout, r.run.Load.Stderr = stdout, stderr
	r.run.Process.Duration = took
	r.run.Process.User, r.run.Process.System, r.run.Process.Peak = r.w.state.User, r.w.state.System, r.w.state.MaxRSS
}

// withheld is a stream of which nothing is told but that it was too long to keep.
func withheld(s judge.Stream) judge.Stream {
	if s.Whole() {
		return judge.Stream{}
	}
	return judge.Stream{Size: s.Size}
}

// all loads the submission and does the cases.
func (r *phaseRun) all(ctx context.Context) error {
	if r.p.Timed() {
		if err := r.calibrate(ctx); err != nil {
			return err
		}
	}
	if err := r.w.load(ctx, schema.CompileLimit); err != nil {
		if r.p.Mode == schema.ModeTest && r.s.rules.lateImport && len(r.cases) > 0 {
			r.beginTests()
			r.report.put("test.0.spec", r.cases[0].spec)
		}
		return &loadError{err}
	}
	if r.p.Test.Limit > 0 {
		r.deadline = time.Now().Add(r.p.Test.Limit)
	}
	switch r.p.Mode {
	case schema.ModeTest:
		return r.tests(ctx)
	case schema.ModeProfile:
		return r.profile(ctx)
	}
	return r.benchmarks(ctx)
}

// A loadError happened while the submission was imported.
type loadError struct{ error }

func (e *loadError) Unwrap() error { return e.error }

func (r *phaseRun) beginTests() { r.report.put("test-count", strconv.Itoa(len(r.cases))) }

// tests checks every case.
func (r *phaseRun) tests(ctx context.Context) error {
	r.beginTests()
	for i, c := range r.cases {
		r.current = i
		prefix := fmt.Sprintf("test.%d.", i)
		r.report.put(prefix+"spec", c.spec)
		note, err := r.attemptTwice(ctx, c)
		if wrong, ok := errors.AsType[caseError](err); ok {
			r.fail(prefix, string(wrong))
			continue
		}
		if err != nil {
			return err
		}
		r.report.put(prefix+"status", "pass")
		switch {
		case note == "":
		case r.s.o.Payload.Seed != nil: // the key, as the task's own harness would have it
			r.report.put(prefix+"message", schema.WithheldText)
		default:
			r.report.putText(prefix+"message", note)
		}
	}
	r.check(judge.ExitFail)
	return nil
}

// benchmarks measures every case.
func (r *phaseRun) benchmarks(ctx context.Context) error {
	ranked := r.p.Mode == schema.ModeLeaderboard
	last := ranked && r.s.rules.lastOnly
	cases := r.cases
	if last {
		cases = cases[len(cases)-1:]
	} else {
		r.report.put("benchmark-count", strconv.Itoa(len(cases)))
	}
	after := ranked && r.s.rules.specAfter || !ranked && r.s.rules.benchmarkSpecAfter
	for i, c := range cases {
		r.current = i
		prefix := fmt.Sprintf("benchmark.%d.", i)
		if !after && !last {
			r.report.put(prefix+"spec", c.spec)
		}
		got, err := r.measure(ctx, c, len(cases)-i)
		wrong, failed := errors.AsType[caseError](err)
		if err != nil && !failed {
			if r.s.rules.warmUp && i == 0 || r.s.rules.warmUpAll && ranked {
				r.report.b.Reset() // its tester would have come to this while it warmed up
			}
			return err
		}
		switch {
		case last && err != nil: // its tester tells no more than this
			r.report.put("test-count", "1")
			r.fail("test.0.", string(wrong))
			return nil
		case last:
			r.report.put("benchmark-count", "1")
			r.report.put(prefix+"spec", c.spec)
			r.report.figures(prefix, got, false)
		case after:
			r.report.put(prefix+"spec", c.spec)
			fallthrough
		default:
			if err == nil {
				r.report.figures(prefix, got, true)
				continue
			}
			r.fail(prefix, string(wrong))
		}
		if err != nil && ranked {
			r.notRun("benchmark", i+1, "a case before it failed")
			break
		}
	}
	status := judge.ExitFail
	if ranked {
		status = r.s.rules.failStatus
	}
	r.check(status)
	return nil
}

func (r *phaseRun) fail(prefix, words string) {
	r.failed = true
	r.report.put(prefix+"status", "fail")
	if r.s.o.Payload.Seed == nil {
		r.report.putText(prefix+"error", words)
	} else {
		r.report.put(prefix+"error", "wrong")
	}
}

// check ends the report.
func (r *phaseRun) check(failStatus int) {
	if r.failed {
		r.report.put("check", "fail")
		r.run.Process.ExitCode = failStatus
		return
	}
	r.report.put("check", "pass")
}

// notRun notes the cases that were not begun.
func (r *phaseRun) notRun(kind string, first int, why string) {
	if r.run.Explanation == nil {
		r.run.Explanation = &schema.Explanation{}
	}
	r.run.Explanation.NotRun = explain.NotRun(kind, first, len(r.cases), why)
}

func (r *phaseRun) kind() string {
	if r.p.Mode == schema.ModeTest {
		return "test"
	}
	return "benchmark"
}

// settle turns the error that ended the cases into an outcome, when it is the
// submission's doing.
func (r *phaseRun) settle(ctx context.Context, err error) error {
	r.run.Process.Report = judge.Stream{Head: []byte(r.report.b.String()), Size: int64(r.report.b.Len())}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	where := r.kind() + " " + strconv.Itoa(r.current)
	first, why := r.current+1, fmt.Sprintf("%s %d ended the run", r.kind(), r.current)
	_, loading := errors.AsType[*loadError](err)
	if loading {
		first = 0
		where, why = r.s.loading()
	}
	raised, isRaised := errors.AsType[*raisedError](err)
	ambiguous, isAmbiguous := errors.AsType[*ambiguousError](err)
	switch {
	case isRaised:
		r.raised(where, raised)
	case errors.Is(err, errSilent):
		if err := r.silent(where, loading); err != nil {
			return err
		}
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE):
		r.gone(where)
	case errors.Is(err, errNonsense), errors.Is(err, errWentOn):
		r.outcome(schema.OutcomeForged, "%s: %s", where, err)
		r.run.Process.ExitCode = 1
	case isAmbiguous:
		r.outcome(schema.OutcomeAmbiguous, "%s: %s", where, ambiguous)
		r.run.Process.ExitCode = 1
	default:
		return err
	}
	r.notRun(r.kind(), first, why)
	r.tellPrinted()
	if r.s.o.Payload.Seed != nil {
		r.run.Explanation = explain.Withhold(r.run.Explanation)
	}
	return nil
}

func (r *phaseRun) outcome(name, format string, args ...any) {
	r.run.Outcome = schema.Outcomef(name, format, args...)
}

// raised is an exception in the submission.
func (r *phaseRun) raised(where string, e *raisedError) {
	r.run.Process.ExitCode = 1
	r.run.Explanation = explain.Exception(e.Raised, r.own())
	words := "it raised an exception" // whose very name is the submission's choice
	if r.s.o.Payload.Seed == nil {
		words = r.run.Explanation.Error
		if x := r.run.Explanation; x.File != "" {
			words = fmt.Sprintf("%s:%d: %s", x.File, x.Line, words)
		}
	}
	r.outcome(e.Outcome(), "%s: %s", where, words)
}

// own is the submitter's file.
func (r *phaseRun) own() schema.Files {
	name := plan.SubmissionFile
	if r.s.native() {
		name = plan.SubmissionCUDA
	}
	text, _ := r.s.o.Payload.Sources.Get(name)
	return schema.Files{{Name: name, Text: text}}
}

// silent is a worker that did not answer in its time.
func (r *phaseRun) silent(where string, loading bool) error {
	limit := r.p.Test.Limit
	if loading {
		limit = schema.CompileLimit
	}
	if !loading && r.judged > limit/2 {
		return &TaskError{fmt.Sprintf("the task's own files are too slow: generate_input and check_implementation took %s of the %s that the %s phase has", r.judged.Round(time.Second), judge.ShownLimit(limit), r.p.Mode)}
	}
	if r.w.starved {
		r.outcome(schema.OutcomeAmbiguous, "%s: no answer within %s, and the submission had to wait for a core for more than a third of its life", where, judge.ShownLimit(limit))
		r.run.Process.ExitCode = 1
		return nil
	}
	r.run.Process.How = judge.TimedOut
	r.run.Process.ExitCode = judge.ExitTimeout
	r.run.Process.Duration = judge.ShownLimit(limit)
	r.outcome(schema.OutcomeTimeout, "%s: passed the time limit of %s", where, judge.ShownLimit(limit))
	return nil
}

// gone is a worker that ended.
func (r *phaseRun) gone(where string) {
	status := r.w.state.Exit
	r.run.Process.ExitCode = status
	secret := r.s.o.Payload.Seed != nil // signal and status could tell of the inputs
	switch {
	case r.w.state.OutOfMemory:
		r.outcome(schema.OutcomeOutOfMemory, "%s: the kernel ended the process for want of memory", where)
	case r.w.swept:
		r.outcome(schema.OutcomeKilled, "%s: the process hung up on the judge, and was ended", where)
	case secret && status < 0:
		r.outcome(schema.OutcomeKilled, "%s: the process was killed by a signal", where)
		r.run.Process.ExitCode = 1
	case status < 0:
		r.outcome(schema.OutcomeKilled, "%s: the process was killed by signal %d (%s)", where, -status, syscall.Signal(-status))
	case secret:
		r.outcome(schema.OutcomeExited, "%s: the submission ended its own process", where)
		r.run.Process.ExitCode = 1
	default:
		r.outcome(schema.OutcomeExited, "%s: the submission ended its own process, with status %d", where, status)
		if status == judge.ExitPass || status == judge.ExitFail {
			r.run.Process.ExitCode = 1 // those say that there is a verdict
		}
	}
}

// tellPrinted adds the last of what the submission printed to the explanation.
func (r *phaseRun) tellPrinted() {
	printed := r.w.stdout.Decoded()
	if r.run.Explanation.Error == "" || printed == "" {
		printed += r.w.stderr.Decoded()
	}
	r.run.Explanation.Printed = explain.Printed(printed)
}
