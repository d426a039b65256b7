package runner

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// An ending stops the evaluation with an outcome of its own; any other error
// is a fault of the machine.
type ending struct{ outcome, text, phase string }

func (e *ending) Error() string { return e.text }

func endf(outcome, format string, args ...any) error {
	return &ending{outcome: outcome, text: fmt.Sprintf(format, args...)}
}

// inPhase says in which phase an ending or a fault happened.
func inPhase(name string, err error) error {
	if err == nil {
		return nil
	}
	var end *ending
	if !errors.As(err, &end) {
		end = fault(err)
	}
	return &ending{end.outcome, name + ": " + end.text, name}
}

// fault is the ending that an error which is none means: the machine's doing.
func fault(err error) *ending {
	if full(err) {
		return &ending{outcome: schema.OutcomeDiskFull, text: err.Error()}
	}
	return &ending{outcome: schema.OutcomeMachine, text: err.Error()}
}

// full tells whether err is about a disk without room.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// outcomeOf turns what evaluate returned into the ending it means.
func outcomeOf(err error) schema.Outcome {
	if err == nil {
		return schema.NewOutcome(schema.OutcomePassed, "")
	}
	var end *ending
	if !errors.As(err, &end) {
		end = fault(err)
	}
	o := schema.NewOutcome(end.outcome, end.text)
	o.Phase = end.phase
	return o
}

// outputLimit is how much a tester may print, in bytes. Nobody reads beyond
// the first 16,384 characters; it bounds what a job may keep a machine busy
// with.
const outputLimit = 1 << 30

// explain finds the more exact ending behind judge's: it knows what the
// machine did meanwhile. oom tells that the kernel ended some process for want
// of memory while the tester ran.
func (ph *phase) explain(err error, done *ended, run *schema.RunResult, oom bool) error {
	if printed := done.stdout.size + done.stderr.size; printed > outputLimit {
		run.Passed = false
		return endf(schema.OutcomeOutputTooLong, "the tester printed %d bytes, at most %d are allowed", printed, outputLimit)
	}
	var end *ending
	if !errors.As(err, &end) {
		return err
	}
	code := done.exitCode
	switch end.outcome {
	case schema.OutcomeWrong:
		if ph.mode == schema.ModeLeaderboard {
			return endf(schema.OutcomeRecheckFailed, "the tests had passed, and then %s", end.text)
		}
	case schema.OutcomeOutOfTime:
		if budget, limited := ph.p.Budget(); limited {
			return endf(end.outcome, "%s; the task's limits allow %s in all", end.text, budget)
		}
	case schema.OutcomeCrashed:
		last := lastLine(done.stderr.decoded())
		switch {
		case code == -int(syscall.SIGKILL) && oom:
			return endf(schema.OutcomeOutOfMemory, "the tester was ended by the kernel for want of memory")
		case code < 0:
			return endf(schema.OutcomeKilled, "%s", end.text)
		case code == 111 || code == 113:
			return endf(schema.OutcomeHarness, "%s", end.text)
		case outOfMemory(last):
			return endf(schema.OutcomeOutOfMemory, "%s: %s", end.text, shorten(last, 200))
		case last != "" && ph.p.Seed == nil: // with a secret seed, no word of the tester goes further than the result
			return endf(end.outcome, "%s: %s", end.text, shorten(last, 200))
		}
	}
	return err
}

// outOfMemory tells whether a program's last words are about memory, the
// machine's or the device's.
func outOfMemory(line string) bool {
	for _, mark := range []string{"MemoryError", "std::bad_alloc", "OutOfMemoryError", "CUDA out of memory", "HIP out of memory", "cudaErrorMemoryAllocation"} {
		if strings.Contains(line, mark) {
			return true
		}
	}
	return false
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// oomKills counts the processes that the kernel has ended for want of memory
// since the machine started, in whatever group; 0 when it does not say.
func oomKills() int64 {
	f, err := os.Open("/proc/vmstat")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if count, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			n, _ := strconv.ParseInt(count, 10, 64)
			return n
		}
	}
	return 0
}

// used is a process's part of the timing.
func used(done *ended) *schema.ProcessUsed {
	u := &schema.ProcessUsed{
		Wall: done.duration.Seconds(), User: done.usage.user.Seconds(), System: done.usage.system.Seconds(),
		Peak: done.usage.peak, Exit: done.exitCode,
	}
	if done.how == exited && done.exitCode < 0 {
		u.Signal = unix.SignalName(syscall.Signal(-done.exitCode))
	}
	switch done.how {
	case killedTimeout:
		u.Killed = "timeout"
	case killedOutOfTime:
		u.Killed = "out of time"
	case killedCanceled:
		u.Killed = "canceled"
	}
	return u
}
