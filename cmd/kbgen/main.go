// Kbgen renders Buildkite pipelines from typed definitions, checks them, prints
// them or hands them to the agent.
package main

import (
	"context"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/cmd/kbgen/secret"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/runner/upload"
)

// values are what completion knows beyond the grammar.
var values = map[string]func() []string{
	"--gpu":    func() []string { return append(pipelines.Fleet.Names(), pipelines.All) },
	"pipeline": pipelines.Names,
	"document": schemaNames,
	"step":     stepKeys,
}

// endGrace is how long a command may take to end after a signal, which has ended
// the programs that it waits for.
const endGrace = upload.Grace + time.Second

// gcPercent lets the heap grow to five times the live data before a collection.
// kbgen lives for a fraction of a second, and collecting at Go's usual rate is a
// fifth of the time of a large pipeline.
const gcPercent = 400

func main() {
	debug.SetGCPercent(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, cli.Process()) }()
	select {
	case status := <-ended:
		os.Exit(status)
	case <-ctx.Done():
	}
	stop() // a second signal ends it at once
	select {
	case status := <-ended:
		os.Exit(status)
	case <-time.After(endGrace): // it reads a terminal or a pipe
		os.Exit(128 + int(syscall.SIGTERM))
	}
}

// commands is the grammar of the command line.
type commands struct {
	Render  renderCmd       `cmd:""`
	Upload  uploadCmd       `cmd:""`
	Plan    planCmd         `cmd:""`
	Diff    diffCmd         `cmd:""`
	Check   checkCommand    `cmd:""`
	Golden  goldenCmd       `cmd:""`
	Explain explainCmd      `cmd:""`
	GPUs    listGPUs        `cmd:"" name:"gpus"`
	Kinds   listKinds       `cmd:""`
	Queues  listQueues      `cmd:""`
	Image   imageCmd        `cmd:""`
	Schema  schemaCmd       `cmd:""`
	Vendor  vendorCommands  `cmd:""`
	Secret  secret.Commands `cmd:""`
}

func kbgen() cli.Program {
	pages := maps.Clone(help)
	maps.Copy(pages, secret.Help)
	return cli.Program{Name: "kbgen", Grammar: &commands{Secret: secret.New(time.Now)}, Help: pages, Values: values}
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
