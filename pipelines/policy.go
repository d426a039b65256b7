package pipelines

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// What holds for every pipeline stands in this file: how long jobs run, which
// come first, what is retried, how many one person may have.

// A RetryClass says which failures of a job are worth another try.
type RetryClass string

const (
	// RetryLost repeats what the infrastructure lost: an agent that vanished
	// or was stopped, on Kubernetes a pod that never came up. Nothing that the
	// command did.
	RetryLost RetryClass = "lost"
	// RetryMachine is RetryLost, and on top exit status 75, kbrun asking for
	// another try, and 2, kbrun's own death. A verdict on a submission is exit
	// status 0.
	RetryMachine RetryClass = "machine"
	// RetryNever repeats nothing.
	RetryNever RetryClass = "never"
)

// Tries is the worst number of times a job of this class is started.
func (c RetryClass) Tries(on Platform) int {
	total := 1
	for _, r := range c.Rules(on) {
		total += r.Limit
	}
	return total
}

// A RetryRule matches when all that it names match; what is left out matches
// anything. Limit counts this rule's retries only.
type RetryRule struct {
	ExitStatus   []int // any of them
	SignalReason string
	Limit        int
}

// Rules returns what the class means, in the order in which Buildkite tries
// the rules.
//
//   - A lost agent is Buildkite's own verdict: exit status -1 and no signal
//     reason. The rule names both, for -1 alone also matches jobs that were
//     cancelled or timed out (cancel), refused (agent_refused,
//     signature_rejected), or whose environment is too large for exec or whose
//     container the docker daemon refused (process_run_error): they would fail
//     the same way again.
//   - A stopped agent says agent_stop. What exit status comes with it differs
//     between agents, so none is named.
//   - stack_error is the Kubernetes controller's word for a pod that it could
//     not start. -7 is a container that stopped answering, -10 one that never
//     did, 137 without a reason one whose end nobody reported: the node's fault,
//     or memory that ran out, which the second try would show again. kbrun says
//     by itself when a submission is out of memory.
//
// Sources: buildkite.com/docs/pipelines/configure/retry; the agent's
// kubernetes/runner.go.
func (c RetryClass) Rules(on Platform) []RetryRule {
	lost, again := []int{-1}, []int{schema.ExitPanic, schema.ExitTempFail}
	var rules []RetryRule
	switch c {
	case RetryLost:
		rules = []RetryRule{{lost, "none", 2}, {nil, "agent_stop", 2}}
	case RetryMachine:
		rules = []RetryRule{{lost, "none", 1}, {nil, "agent_stop", 1}, {again, "", 2}}
	default:
		return nil
	}
	if on == Kubernetes {
		rules = append(rules, RetryRule{nil, "stack_error", 1}, RetryRule{[]int{-7, -10}, "", 1}, RetryRule{[]int{137}, "none", 1})
	}
	return rules
}

// Modes of a submission, as Kernelbot names them, and the priority of their
// jobs. A person waits for a test; nobody waits for the private run that
// follows a ranked one. Buildkite starts higher numbers first.
var modes = []modePriority{
	{schema.ModeTest, 3}, {schema.ModeBenchmark, 2}, {schema.ModeProfile, 2}, {schema.ModeLeaderboard, 1}, {schema.ModePrivate, -1},
}

type modePriority struct {
	name     string
	priority int
}

// Priority returns the priority of a mode's jobs, and whether the mode is one.
func Priority(mode string) (int, bool) {
	for _, m := range modes {
		if m.name == mode {
			return m.priority, true
		}
	}
	return 0, false
}

// Precedence returns the place of a mode in kbserve's queue. It follows [Priority], but
// there the smaller number goes first, and what goes first has 0.
func Precedence(mode string) int {
	p, _ := Priority(mode)
	return modes[0].priority - p
}

// sources lists what makes builds that nobody waits for, and by how much their
// jobs yield to those of submissions on the same queue.
var sources = []struct {
	name  string
	yield int
}{
	{"schedule", 10}, // a nightly sweep over all machines
	{"webhook", 5},   // a push: a person looks at it later
}

// prioritize lets the jobs of such builds wait.
func (s *CommandStep) prioritize(source string) {
	for _, from := range sources {
		if from.name != source {
			continue
		}
		p := -from.yield
		if s.Priority != nil {
			p += *s.Priority
		}
		s.Priority = &p
		s.from("priority", CommandLine, "BUILDKITE_SOURCE="+source+": submissions come first")
	}
}

// CheckMode refuses what is no mode. Empty is none said, and fine.
func CheckMode(mode string) error {
	if _, ok := Priority(mode); ok || mode == "" {
		return nil
	}
	return Unknown("mode", mode, namesOf(modes, func(m modePriority) string { return m.name }))
}

// userJobs is how many evaluations of one person run at once. The rest of
// theirs wait without holding anybody else up.
const userJobs = 4

// userGroup is the concurrency group of a person: their name as far as a group
// may carry it, and a hash of all of it, so that no two persons share one.
func userGroup(user string) string {
	sum := sha256.Sum256([]byte(user))
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, user)
	return fmt.Sprintf("kernelbot/user/%.32s/%s", name, hex.EncodeToString(sum[:8]))
}

// Margins of a job's time. kbrun must end first: a container that outlives a
// cancelled job keeps the GPU, and leaves no result.
const (
	// startMargin is for what comes before kbrun in a container: cloning the
	// plugin, pulling an image that the machine lacks, scheduling a pod.
	startMargin = 2 * time.Minute
	// runnerMargin is for what kbrun does beside the payload's phases: unpack,
	// probe, kill, write, upload.
	runnerMargin = time.Minute
)

// Deadline is how long kbrun may take of a job's timeout where it cannot see
// the timeout itself.
func Deadline(timeout time.Duration) time.Duration { return timeout - startMargin }

// StepTimeout is how long a job on g may take: what the payload may legally
// take plus the margins, in whole minutes, and the row's own limit at most.
// A budget of 0 is unknown: the row's limit.
func StepTimeout(g GPUType, budget time.Duration) time.Duration {
	if budget <= 0 {
		return g.Timeout
	}
	need := budget + runnerMargin
	if g.Platform != Host {
		need += startMargin
	}
	if rest := need % time.Minute; rest != 0 {
		need += time.Minute - rest
	}
	return min(max(need, minTimeout), g.Timeout)
}
