// Kblocal is Buildkite's stand-in on loopback: real agents work for it, so
// that every pipeline can be run offline.
package main

import (
	"context"
	"os"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/local/session"
)

func main() {
	var grammar struct {
		Up    upCmd    `cmd:""`
		Exec  execCmd  `cmd:""`
		Run   runCmd   `cmd:""`
		Agent agentCmd `cmd:""`
		Watch watchCmd `cmd:"" hidden:""`
	}
	os.Exit(cli.Main(cli.Program{Name: "kblocal", Grammar: &grammar, Help: help}))
}

// watchCmd is the process that outlives a kblocal which was killed.
type watchCmd struct {
	Marker string   `arg:""`
	Remove []string `arg:"" optional:""`
}

func (c *watchCmd) Run(_ context.Context, env *cli.Env) error {
	return session.Watch(env.Stdin, c.Marker, c.Remove)
}
