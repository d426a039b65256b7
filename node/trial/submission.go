package trial

import (
	_ "embed"

	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Submit has a right and a wrong submission judged through Buildkite itself, on each
// queue that the slots serve. Which of a queue's machines takes them is Buildkite's
// choice; the result says whose it was.
func Submit(ctx context.Context, client *launcher.Client, all []*node.Slot) []doctor.Result {
	var slots []*node.Slot // one for each queue
	for _, s := range all {
		if !slices.ContainsFunc(slots, func(other *node.Slot) bool { return other.Queue == s.Queue }) {
			slots = append(slots, s)
		}
	}
	results := make([]doctor.Result, 2*len(slots))
	var wait sync.WaitGroup
	for i, s := range slots {
		for k, trial := range submissions {
			wait.Go(func() { results[2*i+k] = submitOne(ctx, client, s, trial) })
		}
	}
	wait.Wait()
	return results
}

// submitOne submits once and compares the verdict.
func submitOne(ctx context.Context, client *launcher.Client, s *node.Slot, trial submission) doctor.Result {
	r := doctor.Result{Code: "submit-" + trial.name, Slot: s.Name, State: doctor.Failure, Fix: "kbnode status; kblaunch queues --check FILE"}
	p, err := payload(trial.code)
	if err != nil {
		r.Text = err.Error()
		return r
	}
	began := time.Now()
	report, err := client.Submit(ctx, launcher.Submission{Payload: p, GPU: s.GPUType, Queue: s.Queue, Task: "kbnode-doctor", File: trial.name + ".py", ID: "kbnode"})
	switch {
	case err != nil:
		r.Text = text.Line(fmt.Sprintf("queue %s gave a %s submission no verdict: %v", s.Queue, trial.name, err), 300)
	case report.Result.Outcome.Name != trial.want:
		r.Text = text.Line(fmt.Sprintf("queue %s: a %s submission ended as %s, want %s", s.Queue, trial.name, outcomeOf(report.Result), trial.want), 300)
	default:
		r.State, r.Fix = doctor.OK, ""
		r.Text = text.Line(fmt.Sprintf("queue %s judged a %s submission in %.0f s (build %d, on %s)", s.Queue, trial.name, time.Since(began).Seconds(),
			report.Build, cmp.Or(report.Result.System.Hostname, "a machine without a name")), 300)
	}
	return r
}

// A submission is code whose verdict is known.
type submission struct{ name, code, want string }

var submissions = []submission{
	{"right", "def custom_kernel(n):\n    return n\n", schema.OutcomePassed},
	{"wrong", "def custom_kernel(n):\n    return n + 1\n", schema.OutcomeWrong},
}

//go:embed harness.py
var harness string

// payload packs a submission for a task whose harness wants nothing but python3.
func payload(code string) (*schema.Payload, error) {
	p := &schema.Payload{
		Main: "harness.py", Lang: schema.LangPython, Mode: schema.ModeTest, Benchmarks: []schema.Case{},
		Tests:   []schema.Case{{{Name: "n", Value: schema.IntValue(1)}}, {{Name: "n", Value: schema.IntValue(2)}}},
		Sources: schema.Files{{Name: "submission.py", Text: code}, {Name: "harness.py", Text: harness}},
	}
	return p, p.Validate()
}
