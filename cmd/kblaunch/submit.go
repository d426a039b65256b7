package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/examples"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/launcher/progress"
	"github.com/gpu-mode/kbgen/launcher/seal"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
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
	submissions, err := s.submissions(env)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	out := newOutput(env, &s.outputFlags)
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

// submissions checks everything that can be checked without Buildkite, and returns
// one submission for each GPU type.
func (s *submitCmd) submissions(env *cli.Env) ([]launcher.Submission, error) {
	t, file, err := s.read(env)
	if err != nil {
		return nil, err
	}
	directives, err := schema.ParseDirectives(file.Text)
	if err != nil {
		return nil, fmt.Errorf("submission %s: %w", file.Name, err)
	}
	rows, queue, err := s.rows(directives)
	if err != nil {
		return nil, err
	}
	var all []launcher.Submission
	for _, row := range rows {
		arch := &row.Arch
		if row.Arch == "" {
			arch = nil
		}
		payload, err := t.Payload(file, s.Mode, arch, nil)
		if err != nil {
			return nil, err
		}
		sub := launcher.Submission{
			Payload: payload, GPU: row.Name, Queue: cmp.Or(queue, row.Queue), RunID: s.RunID, Task: s.taskName(directives), File: filepath.Base(file.Name),
			Branch: s.Branch, Commit: s.Commit, QueueTimeout: s.QueueTimeout, RunTimeout: cmp.Or(s.Timeout, row.Timeout+time.Minute),
		}
		if s.RunID != "" && len(rows) > 1 {
			sub.RunID += "-" + row.Name // one run on each GPU type
		}
		if _, number := buildNumber(sub.RunID); sub.RunID != "" && (number || !launcher.ValidRunID(sub.RunID)) {
			return nil, fmt.Errorf("--run-id: got %s, want up to 200 letters, digits, dots, colons, - and _, and no number alone, which names a build", text.Quote(sub.RunID))
		}
		if sub.Seal, err = s.seal(env, sub.Queue, sub.RunTimeout); err != nil {
			return nil, err
		}
		all = append(all, sub)
	}
	return all, nil
}

// taskName is what people call the task.
func (s *submitCmd) taskName(d schema.Directives) string {
	if s.Task == "" {
		return d.Leaderboard
	}
	return filepath.Base(filepath.Clean(s.Task))
}

// rows are the GPU types asked for, and the queue where one was named: by flags,
// else by the submission's own text.
func (s *submitCmd) rows(d schema.Directives) (rows []pipelines.GPUType, queue string, err error) {
	names := s.GPU
	if len(names) == 0 && s.Queue != "" {
		row, err := pipelines.Fleet.LookupQueue(s.Queue)
		return []pipelines.GPUType{row}, s.Queue, err
	}
	if len(names) == 0 {
		names = d.GPUs
	}
	if len(names) == 0 {
		return nil, "", cli.WithHint(errors.New("no GPU type: give --gpu, --queue, or a line #!POPCORN gpus NAME in the submission"), "kbgen gpus lists them")
	}
	for _, name := range names {
		row, err := pipelines.Fleet.Lookup(name)
		if err != nil {
			return nil, "", err
		}
		if !slices.ContainsFunc(rows, func(r pipelines.GPUType) bool { return r.Name == row.Name }) {
			rows = append(rows, row)
		}
	}
	if s.Queue == "" {
		return rows, "", nil
	}
	of, err := pipelines.Fleet.LookupQueue(s.Queue)
	if err != nil {
		return nil, "", err
	}
	if len(rows) != 1 || rows[0].Name != of.Name {
		return nil, "", fmt.Errorf("--queue %s: it is for %s alone, got --gpu %s", s.Queue, of.Name, strings.Join(names, ","))
	}
	return rows, s.Queue, nil
}

// read finds the task and the submission. With one argument that is the
// submission, which names its task itself.
func (s *submitCmd) read(env *cli.Env) (*task.Task, schema.File, error) {
	if s.Submission == "" {
		s.Submission, s.Task = s.Task, ""
	}
	if s.Task != "" {
		return s.readBoth(env, s.Task)
	}
	if s.Submission != "-" {
		if _, err := os.Stat(s.Submission); err != nil {
			return nil, schema.File{}, cli.WithHint(fmt.Errorf("got %q alone, want a task and a submission, or a file that names its task", s.Submission), "kblaunch submit --help")
		}
	}
	file, err := task.OpenSubmission(env.Stdin, s.Submission, ".py")
	if err != nil {
		return nil, file, err
	}
	d, err := schema.ParseDirectives(file.Text)
	if err != nil {
		return nil, file, fmt.Errorf("submission %s: %w", file.Name, err)
	}
	if d.Leaderboard == "" {
		return nil, file, cli.WithHint(fmt.Errorf("submission %s: it names no task: give TASK, or begin the file with #!POPCORN leaderboard NAME", file.Name), "kblaunch submit --help")
	}
	// A backend's submissions come from strangers: they name a task, and no place
	// on this machine.
	if strings.ContainsAny(d.Leaderboard, `/\`) || strings.HasPrefix(d.Leaderboard, ".") {
		return nil, file, cli.WithHint(fmt.Errorf("submission %s: #!POPCORN leaderboard: got %s, want a name, not a path", file.Name, text.Quote(d.Leaderboard)), "kblaunch submit TASK SUBMISSION takes a task from anywhere")
	}
	t, _, err := findTask(d.Leaderboard)
	if err == nil && s.Submission == "-" && t.Lang == schema.LangCUDA {
		file.Name = "stdin.cu"
	}
	return t, file, err
}

// readBoth finds a task and a submission by path, or among the examples. What
// lies on disk comes first.
func (s *submitCmd) readBoth(env *cli.Env, name string) (*task.Task, schema.File, error) {
	t, example, err := findTask(name)
	if err != nil {
		return nil, schema.File{}, err
	}
	extension := ".py"
	if t.Lang == schema.LangCUDA {
		extension = ".cu"
	}
	if _, err := os.Stat(s.Submission); err == nil || s.Submission == "-" || example == nil {
		file, err := task.OpenSubmission(env.Stdin, s.Submission, extension)
		return t, file, err
	}
	path, err := example.Submission(s.Submission)
	if err != nil {
		return nil, schema.File{}, fmt.Errorf("%w, or a file", err)
	}
	f, err := examples.FS().Open(path)
	if err != nil {
		return nil, schema.File{}, err
	}
	defer f.Close()
	file, err := task.ReadSubmission(f, path)
	return t, file, err
}

// findTask finds a task by path, or among the examples, which it returns then.
func findTask(name string) (*task.Task, *examples.Example, error) {
	if _, err := os.Stat(name); err == nil {
		t, err := task.LoadDir(name)
		return t, nil, err
	}
	example, ok := examples.Find(name)
	if !ok {
		return nil, nil, fmt.Errorf("task: got %q, want a folder with a %s or one of the examples %q", name, task.FileName, exampleNames())
	}
	t, err := task.Load(examples.FS(), example.Dir)
	return t, &example, err
}
