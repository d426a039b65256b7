package upload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Relay waits in the job that uploads for the one evaluation of its build, and
// hands that job's result on as a file of its own. Launchers that look for the
// result in a build's first job, as Kernelbot's own, find it there.
//
// The job keeps its agent all the while. The agents of its queue are how many
// evaluations can be waited for at once; the evaluation needs another queue.
type Relay struct {
	Uploader
	Step string // key
}

// An EndError is an evaluation that did not end well: its job ends as that one did.
type EndError struct {
	Status int // of the job
	Err    error
}

func (e *EndError) Error() string { return e.Err.Error() }
func (e *EndError) Unwrap() error { return e.Err }

const (
	resultFile = "result.json"

	// Pauses between two looks at the step double up to the longer one.
	relayFirst, relayMost = 500 * time.Millisecond, 5 * time.Second
	// relayCall bounds one look. The agent itself repeats it for 50 s.
	relayCall = 90 * time.Second
	// relayDeaf is how long nobody may answer. Retries of the agent included,
	// that is a service that is down, and not one that hiccups.
	relayDeaf = 10 * time.Minute
	// relayFetch bounds one download or upload of the result. The agent repeats
	// by itself what an answer says may be better next time; relayTries is for the
	// rest, since an evaluation hangs on it.
	relayFetch = 3 * time.Minute
	relayTries = 5
)

// Run waits, shows the result, and ends as the evaluation's job did.
//
// Error: *[EndError] among them.
func (r Relay) Run(ctx context.Context) error {
	fmt.Fprintf(r.Stderr, "kbgen: waiting for step %s, whose result this job will show as its own\n", r.Step)
	if err := r.wait(ctx); err != nil {
		return fmt.Errorf("waiting for step %s: %w", r.Step, err)
	}
	dir, err := os.MkdirTemp("", "kbgen-relay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	outcome, asked := r.get(ctx, "outcome")
	tries := relayTries
	if asked == nil && outcome != "passed" {
		tries = 2 // there may be none
	}
	// The latest attempt's, since the agent leaves out retried jobs.
	if err := r.again(ctx, tries, dir, "artifact", "download", resultFile, ".", "--step", r.Step); err != nil {
		if asked == nil && outcome == "passed" {
			return fmt.Errorf("step %s has passed and left no result: %w", r.Step, err)
		}
		return fmt.Errorf("step %s left no result, its outcome is %q: %w", r.Step, outcome, err)
	}
	result, err := readResult(filepath.Join(dir, resultFile))
	if err != nil {
		return fmt.Errorf("the result of step %s: %w", r.Step, err)
	}
	if err := r.again(ctx, relayTries, dir, "artifact", "upload", resultFile); err != nil {
		return fmt.Errorf("showing the result of step %s: %w", r.Step, err)
	}
	name := text.Line(result.Outcome.Name, 60)
	fmt.Fprintf(r.Stderr, "kbgen: step %s ended: %s\n", r.Step, name)
	switch status := result.Outcome.ExitStatus(); {
	case status != 0:
		return &EndError{Status: status, Err: fmt.Errorf("step %s: %s", r.Step, name)}
	case asked == nil && outcome != "passed":
		return fmt.Errorf("step %s has a verdict, and its outcome is %q", r.Step, outcome)
	}
	return nil
}

// again runs a command of the agent until it works, up to tries times.
//
// Error: that of the last try.
func (r Relay) again(ctx context.Context, tries int, dir string, args ...string) error {
	for pause := relayFirst; ; pause *= 2 {
		err := r.Call(ctx, relayFetch, dir, "", args...)
		if tries--; err == nil || tries == 0 || ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(r.Stderr, "kbgen: warning: %v; trying again in %s\n", err, pause)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// wait returns once the step has ended, all its tries included.
func (r Relay) wait(ctx context.Context) error {
	heard, said := time.Now(), ""
	for pause := relayFirst; ; pause = min(2*pause, relayMost) {
		state, err := r.get(ctx, "state")
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && ended(state):
			return nil
		case err == nil:
			heard, said = time.Now(), ""
		case time.Since(heard) > relayDeaf:
			return fmt.Errorf("nobody has said its state for %s: %w", relayDeaf, err)
		case err.Error() != said:
			said = err.Error()
			fmt.Fprintf(r.Stderr, "kbgen: warning: asking for the state of step %s: %v\n", r.Step, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// ended reports whether a step of that state runs no more. A step that is
// waiting, ready, running or failing, and one in a state that we do not know,
// may still run.
func ended(state string) bool {
	return slices.Contains([]string{"finished", "ignored", "canceled", "skipped", "broken"}, state)
}

// get asks for an attribute of the step.
func (r Relay) get(ctx context.Context, attribute string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, relayCall)
	defer stop()
	out, err := r.Command(ctx, Grace, "step", "get", attribute, "--step", r.Step).Output()
	return strings.TrimSpace(string(out)), err
}

func readResult(path string) (*schema.Result, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.Size() > schema.MaxResult:
		return nil, fmt.Errorf("got %d bytes, want at most %d", info.Size(), schema.MaxResult)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	result, err := schema.DecodeResult(data)
	if err == nil && result.Outcome.Name == "" {
		err = errors.New("it has no outcome: kbrun did not write it")
	}
	return result, err
}
