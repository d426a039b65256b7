package runner

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/schema"
)

// An outcomeError ends the evaluation with an outcome of its own; any other
// error is a fault of the machine.
type outcomeError struct{ name, text, phase string }

func (e *outcomeError) Error() string { return e.text }

func outcomef(name, format string, args ...any) error {
	return &outcomeError{name: name, text: fmt.Sprintf(format, args...)}
}

// outcomeErr is o as an error, nil when it is nil.
func outcomeErr(o *schema.Outcome) error {
	if o == nil {
		return nil
	}
	return &outcomeError{name: o.Name, text: o.Text}
}

// inPhase says in which phase an evaluation ended.
func inPhase(name string, err error) error {
	if err == nil {
		return nil
	}
	end := asOutcome(err)
	return &outcomeError{end.name, name + ": " + end.text, name}
}

// asOutcome is the outcome that an error means: its own, or the machine's fault.
func asOutcome(err error) *outcomeError {
	var end *outcomeError
	switch {
	case errors.As(err, &end):
		return end
	case isDiskFull(err):
		return &outcomeError{name: schema.OutcomeDiskFull, text: err.Error()}
	}
	return &outcomeError{name: schema.OutcomeMachine, text: err.Error()}
}

// isDiskFull reports whether err is about a disk without room.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// outcomeOf turns what evaluate returned into the outcome that it means.
func outcomeOf(err error) schema.Outcome {
	if err == nil {
		return schema.NewOutcome(schema.OutcomePassed, "")
	}
	end := asOutcome(err)
	o := schema.NewOutcome(end.name, end.text)
	o.Phase = end.phase
	return o
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
