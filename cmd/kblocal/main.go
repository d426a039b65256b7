// Kblocal is Buildkite's stand-in on loopback: real agents work for it, so
// that every pipeline can be run offline.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/local/session"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, cli.Process())
	stop()
	os.Exit(code)
}

func run(ctx context.Context, env *cli.Env) int {
	var grammar struct {
		Up    upCmd    `cmd:""`
		Exec  execCmd  `cmd:""`
		Run   runCmd   `cmd:""`
		Agent agentCmd `cmd:""`
		Watch watchCmd `cmd:"" hidden:""`
	}
	return cli.Program{Name: "kblocal", Grammar: &grammar, Help: help}.Run(ctx, env)
}

// watchCmd is the process that outlives a kblocal which was killed.
type watchCmd struct {
	Marker string   `arg:""`
	Remove []string `arg:"" optional:""`
}

func (c *watchCmd) Run(_ context.Context, env *cli.Env) error {
	return session.Watch(env.Stdin, c.Marker, c.Remove)
}
