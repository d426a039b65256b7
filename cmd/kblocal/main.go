// Kblocal is Buildkite's stand-in on loopback: real agents work for it, so
// that every pipeline can be run offline.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
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
		Watch watchCmd `cmd:"" hidden:""` // see watch.go
	}
	return cli.Program{Name: "kblocal", Grammar: &grammar, Help: help}.Run(ctx, env)
}
