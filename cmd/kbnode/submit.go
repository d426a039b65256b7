package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// submitted has a right and a wrong submission judged through Buildkite itself, on
// each queue that the slots serve. Which of a queue's machines takes them is
// Buildkite's choice; the result says whose it was.
func submitted(ctx context.Context, env *cli.Env, config *node.Config, only string) ([]doctor.Result, error) {
	variable := func(name, otherwise string) string {
		return cmp.Or(env.Getenv(name), otherwise)
	}
	token := variable("BUILDKITE_API_TOKEN", "")
	if token == "" {
		return nil, cli.Usagef("--submit: BUILDKITE_API_TOKEN is not set; want a token with write_builds, read_builds and read_artifacts")
	}
	client, err := launcher.New(launcher.Options{
		BaseURL: variable("KBLAUNCH_API_URL", "https://api.buildkite.com/"), Token: token,
		Org: variable("BUILDKITE_ORG", "gpu-mode"), Pipeline: variable("BUILDKITE_PIPELINE", "kernelbot"), UserAgent: "kbnode/" + cli.Version(),
	})
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	var slots []*node.Slot // one for each queue
	for i := range config.Slots {
		s := &config.Slots[i]
		if only != "" && s.Name != only || slices.ContainsFunc(slots, func(other *node.Slot) bool { return other.Queue == s.Queue }) {
			continue
		}
		slots = append(slots, s)
	}
	results := make([]doctor.Result, 2*len(slots))
	var wait sync.WaitGroup
	for i, s := range slots {
		for k, trial := range trials {
			wait.Go(func() { results[2*i+k] = submitOne(ctx, client, s, trial) })
		}
	}
	wait.Wait()
	return results, nil
}

// submitOne submits once and compares the verdict.
func submitOne(ctx context.Context, client *launcher.Client, s *node.Slot, trial trialSubmission) doctor.Result {
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

// A trialSubmission is code whose verdict is known.
type trialSubmission struct{ name, code, want string }

var trials = []trialSubmission{
	{"right", "def custom_kernel(n):\n    return n\n", schema.OutcomePassed},
	{"wrong", "def custom_kernel(n):\n    return n + 1\n", schema.OutcomeWrong},
}
