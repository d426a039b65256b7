package main

import (
	"context"
	"fmt"
	"os"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node/release"
)

// versionCmd checks the programs; without flags, package cli prints the version.
type versionCmd struct {
	Verify string `required:"" placeholder:"SHA256SUMS" help:"the release's sums; FILE.minisig beside it is their signature"`
	Key    string `required:"" placeholder:"KEY" help:"the minisign public key of kbgen's releases, RW..."`
}

func (c *versionCmd) Run(_ context.Context, env *cli.Env) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	comment, programs, err := release.Verify(c.Verify, c.Key, self)
	if comment != "" {
		fmt.Fprintf(env.Stdout, "%s: OK, signed: %s\n", c.Verify, comment)
	}
	for _, program := range programs {
		fmt.Fprintf(env.Stdout, "%s: OK\n", program)
	}
	return public(err)
}
