// Kbgen prints the Buildkite pipeline that evaluates a kernel submission, or
// hands it to the agent.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

func main() {
	os.Exit(start())
}

func start() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, &cli.Env{
		Args:      os.Args[1:],
		LookupEnv: os.LookupEnv,
		Environ:   os.Environ,
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
	})
}

// commands is the grammar of the command line.
type commands struct {
	Render struct {
		Evaluate renderEvaluate `cmd:""`
	} `cmd:""`
	Upload struct {
		Evaluate uploadEvaluate `cmd:""`
	} `cmd:""`
	GPUs listGPUs `cmd:"" name:"gpus"`
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
	status = cli.Program{Name: "kbgen", Grammar: &commands{}, Help: help}.Run(ctx, &inner)
	ended = true
	return status
}

// mayFeedPipe tells whether somebody may read stdout as a pipeline: anything
// but kbgen upload, which hands over by itself, and a person at a terminal.
func mayFeedPipe(env *cli.Env) bool {
	if len(env.Args) > 0 && env.Args[0] == "upload" {
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
