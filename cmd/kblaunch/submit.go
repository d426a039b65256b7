package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/launcher/progress"
	"github.com/gpu-mode/kbgen/launcher/seal"
)

type submitCmd struct {
	Task       string `arg:""`
	Submission string `arg:"" optional:""`

	GPU   []string `name:"gpu" placeholder:"NAME" help:"GPU type (kbgen gpus); for several repeat it, or A,B"`
	Queue string   `placeholder:"NAME" help:"a vendor's own queue, such as nebius-h100-0, which says the GPU type"`
	Mode  string   `enum:"test,benchmark,profile,leaderboard,private" default:"test" placeholder:"MODE" help:"test, benchmark, profile, leaderboard or private"`
	RunID string   `name:"run-id" placeholder:"ID" help:"the id of the run; if it has a build already, wait for that build and make none; with several GPU types each run gets ID-NAME"`

	Detach bool `xor:"way" help:"print the run id once there is a build, and exit"`
	DryRun bool `xor:"way" name:"dry-run" help:"print what would be sent, without a token"`
	outputFlags
	Timing bool `help:"print where the time went"`

	Seal string `var:"KBLAUNCH_SEAL" placeholder:"FILE" help:"seal the payload for the recipients in FILE"`

	Timeout      time.Duration `placeholder:"D" help:"the longest run on the machine; default 30m"`
	QueueTimeout time.Duration `default:"30m" placeholder:"D" help:"the longest wait for a machine"`

	clientFlags
	Branch string `default:"main" help:"branch of the build"`
	Commit string `default:"HEAD" help:"commit of the build"`
}

// Run submits and prints. A submission that did not pass is an exit status alone.
func (s *submitCmd) Run(ctx context.Context, env *cli.Env) error {
	if s.Timeout < 0 || s.QueueTimeout < 0 {
		return cli.Usagef("timeouts: got one below zero")
	}
	all, err := s.jobs(env)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	out := newOutput(env, &s.outputFlags)
	var submissions []launcher.Submission
	for _, j := range all {
		seal, err := s.seal(env, j.queue, s.runTimeout(j))
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		submissions = append(submissions, launcher.Submission{
			Payload: j.payload, Seal: seal, GPU: j.gpu.Name, Queue: j.queue, RunID: j.runID, Task: j.task, File: j.file, Branch: s.Branch, Commit: s.Commit,
			QueueTimeout: s.QueueTimeout, RunTimeout: s.runTimeout(j),
		})
	}
	if s.DryRun {
		return s.dryRun(env, out, submissions)
	}
	client, err := s.client(env)
	if err != nil {
		return err
	}
	show := progress.New(ctx, env.Stderr, client, out.event, len(submissions))
	conclusions := make([]*conclusion, len(submissions))
	var over sync.WaitGroup
	for i, sub := range submissions {
		sub.Progress = show.Event
		over.Go(func() { conclusions[i] = s.one(ctx, client, sub) })
	}
	over.Wait()
	show.Stop()
	for _, e := range conclusions {
		e.note(env.Stderr)
		if s.Timing && e.report != nil {
			printTiming(ctx, env.Stderr, client, e.report)
		}
	}
	return out.end(ctx, conclusions)
}

// runTimeout is the longest that the run may take on its machine.
func (s *submitCmd) runTimeout(j job) time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return j.gpu.Timeout + time.Minute
}

// one submits to one GPU type.
func (s *submitCmd) one(ctx context.Context, client *launcher.Client, sub launcher.Submission) *conclusion {
	e := &conclusion{gpu: sub.GPU, queue: sub.Queue, mode: sub.Payload.Mode, ranking: sub.Payload.RankingBy, runID: sub.RunID}
	show := sub.Progress
	sub.Progress = func(event launcher.Event) { // an error does not always say which build it is about
		e.runID, e.build, e.url = event.RunID, max(event.Build, e.build), cmp.Or(event.BuildURL, e.url)
		show(event)
	}
	if !s.Detach {
		e.report, e.err = client.Submit(ctx, sub)
		e.found(e.report)
		return e
	}
	run, err := client.CreateOrAdopt(ctx, sub)
	if e.err = err; err == nil {
		e.runID, e.build, e.url, e.detached = run.ID, run.Build, run.BuildURL, true
	}
	return e
}

// dryRun says what would be sent, and sends nothing.
func (s *submitCmd) dryRun(env *cli.Env, out *output, all []launcher.Submission) error {
	var plan []plannedJSON
	for _, sub := range all {
		encoded, err := sub.Payload.Encode()
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		plan = append(plan, plannedJSON{
			GPUType: sub.GPU, Queue: sub.Queue, Mode: sub.Payload.Mode, RunID: sub.RunID, PayloadBytes: len(encoded), Sealed: sub.Seal != nil,
			Organization: s.Org, Pipeline: s.Pipeline, Branch: sub.Branch, Commit: sub.Commit,
		})
	}
	return out.dryRun(plan)
}

// printTiming prints where the time of a submission went, and its REST calls.
func printTiming(ctx context.Context, w io.Writer, client *launcher.Client, report *launcher.Report) {
	calls := client.Calls() // without the one for the table itself
	for _, span := range client.Spans(ctx, report) {
		fmt.Fprintf(w, "%-10s %8.3f s  %s\n", span.Name, span.Duration.Seconds(), span.Note)
	}
	fmt.Fprintf(w, "REST calls: %s\n", calls)
}

// seal returns what seals this submission, nil when nobody asks for it.
func (s *submitCmd) seal(env *cli.Env, queue string, runTimeout time.Duration) (func(runID, encoded string) (string, error), error) {
	if s.Seal == "" {
		return nil, nil
	}
	by, err := seal.For(s.Seal, queue, s.QueueTimeout+runTimeout, time.Now)
	if err == nil && by == nil {
		fmt.Fprintf(env.Stderr, "kblaunch: note: %s does not name queue %s: whoever may see the build can read this submission\n", s.Seal, queue)
	}
	return by, err
}
