// Kbgen renders Buildkite pipelines from typed definitions, checks them, prints
// them or hands them to the agent.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/pipelines"
)

// values are what completion knows beyond the grammar.
var values = map[string]func() []string{
	"--gpu":    func() []string { return append(pipelines.Fleet.Names(), pipelines.All) },
	"pipeline": pipelines.Names,
	"document": schemaNames,
	"step":     stepKeys,
}

// waits reports whether a command line waits for other programs, to end them
// with itself. The others end at a signal without being told, whatever they
// compute, and listening for one takes a tenth of their time.
func waits(args []string) bool {
	return len(args) > 0 && (args[0] == "upload" || args[0] == "vendor" && slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--live") }))
}

func main() {
	os.Exit(start())
}

func start() int {
	ctx := context.Background()
	if waits(os.Args[1:]) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // a second signal ends it as it is
		defer stop()
	}
	return run(ctx, cli.Process())
}

// commands is the grammar of the command line.
type commands struct {
	Render  renderCmd      `cmd:""`
	Upload  uploadCmd      `cmd:""`
	Plan    planCmd        `cmd:""`
	Diff    diffCmd        `cmd:""`
	Check   checkCommand   `cmd:""`
	Golden  goldenCmd      `cmd:""`
	Explain explainCmd     `cmd:""`
	GPUs    listGPUs       `cmd:"" name:"gpus"`
	Kinds   listKinds      `cmd:""`
	Queues  listQueues     `cmd:""`
	Image   imageCmd       `cmd:""`
	Schema  schemaCmd      `cmd:""`
	Vendor  vendorCommands `cmd:""`
	Secret  secretCmd      `cmd:"" passthrough:""`
}

func kbgen() cli.Program {
	return cli.Program{Name: "kbgen", Grammar: &commands{}, Help: help, Values: values}
}

// refused is what stands on stdout instead of a pipeline when there is none.
// In `kbgen render … | buildkite-agent pipeline upload` a shell without
// pipefail looks at the agent alone, and the agent takes empty input for
// nothing to do: a green build. No YAML document starts with @.
const refused = "@kbgen: no pipeline, kbgen failed (see the log above)\n"

// run executes one command line and returns the exit status.
func run(ctx context.Context, env *cli.Env) (status int) {
	out := &watchedWriter{w: env.Stdout}
	inner := *env
	inner.Stdout = out
	ended := false
	defer func() { // also on the way out of a panic
		failed := !ended || status != cli.ExitDone
		if failed && !out.written && mayFeedPipe(env) {
			io.WriteString(env.Stdout, refused)
		}
	}()
	status = kbgen().Run(ctx, &inner)
	ended = true
	return status
}

// pipelineless are the commands that print no pipeline. kbgen upload hands over
// by itself.
var pipelineless = []string{"upload", "vendor", "check", "plan", "diff", "golden", "explain", "gpus", "kinds", "queues", "image", "schema", "secret", "completion", "man", "help"}

// mayFeedPipe reports whether somebody may read stdout as a pipeline: anything
// but the commands that print none, and a person at a terminal.
func mayFeedPipe(env *cli.Env) bool {
	if len(env.Args) > 0 && slices.Contains(pipelineless, env.Args[0]) {
		return false
	}
	f, ok := env.Stdout.(*os.File)
	return !ok || !term.IsTerminal(int(f.Fd()))
}

// A watchedWriter knows whether anything was written.
type watchedWriter struct {
	w       io.Writer
	written bool
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	w.written = w.written || len(p) > 0
	return w.w.Write(p)
}
