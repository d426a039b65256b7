package runner

import (
	"context"
	"errors"
	"syscall"

	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/schema"
)

// An outcomeError ends the evaluation with an outcome of its own; any other
// error is a fault of the machine.
type outcomeError struct{ *schema.Outcome }

func (e outcomeError) Error() string { return e.Text }

func outcomef(name, format string, args ...any) error {
	return outcomeError{schema.Outcomef(name, format, args...)}
}

// outcomeErr is o as an error, nil when it is nil.
func outcomeErr(o *schema.Outcome) error {
	if o == nil {
		return nil
	}
	return outcomeError{o}
}

// inPhase says in which phase an evaluation ended.
func inPhase(name string, err error) error {
	if err == nil {
		return nil
	}
	o := outcomeOf(err)
	o.Text, o.Phase = name+": "+o.Text, name
	return outcomeError{&o}
}

// isDiskFull reports whether err is about a disk without room.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// outcomeOf turns what evaluate returned into the outcome that it means: its own,
// or the machine's fault.
func outcomeOf(err error) schema.Outcome {
	if end, ok := errors.AsType[outcomeError](err); ok {
		return *end.Outcome
	}
	switch {
	case err == nil:
		return schema.NewOutcome(schema.OutcomePassed, "")
	case isDiskFull(err):
		return schema.NewOutcome(schema.OutcomeDiskFull, err.Error())
	}
	return schema.NewOutcome(schema.OutcomeMachine, err.Error())
}

// Causes that end a phase from outside of it.
var (
	errOutOfTime = errors.New(judge.OutOfTimeText)
	errCanceled  = errors.New("the job was ended from outside")
)

// stopped returns why the evaluation has been ended from outside, nil when it
// has not.
func stopped(ctx context.Context) error {
	switch {
	case ctx.Err() == nil:
		return nil
	case errors.Is(context.Cause(ctx), errOutOfTime):
		return outcomef(schema.OutcomeOutOfTime, "%s", errOutOfTime)
	}
	return outcomef(schema.OutcomeCanceled, "%s", errCanceled)
}
