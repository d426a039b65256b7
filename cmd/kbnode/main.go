// Kbnode looks after a vendor's GPU node. What stands of it so far is the broker
// of secrets.
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
	code := program().Run(ctx, &cli.Env{
		Args:      os.Args[1:],
		LookupEnv: os.LookupEnv,
		Environ:   os.Environ,
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
	})
	stop()
	os.Exit(code)
}

type grammar struct {
	Secretd secretdCmd `cmd:""`
}

func program() cli.Program {
	return cli.Program{Name: "kbnode", Grammar: &grammar{}, Help: help}
}

var help = map[string]string{
	"": `kbnode looks after a vendor's GPU node.

usage:
  kbnode secretd               hand secrets to the steps that may have them
  kbnode completion SHELL      for bash, zsh or fish
  kbnode man                   all help pages, for man(1)
  kbnode COMMAND --help | kbnode --version

exit status: 0 done, 1 failed, 2 wrong usage
`,
	"secretd": `usage: kbnode secretd [--config FILE] [--socket PATH] [--check]

Answers steps that ask for a secret (kbgen secret get). Runs as root with the
node's private keys, on the socket that systemd hands over, else on PATH. Logs
who asked for what and what was decided, never a value.

  --config FILE        (default /etc/kbnode/secretd.yml)
  --socket PATH        (default /run/kbnode/secretd.sock); for the group --group
  --group NAME         who may ask (default: the group that the process runs with)
  --check              read config and keys, say what they are, and end

The config, YAML:
  version: 1
  keys: [secret.key]       files: in systemd's credentials directory, else beside
                           the config; their owner's alone (0600)
  oidc:                    who is believed: tokens of Buildkite's jobs
    organizations: [UUID]
    audience: kbnode       (default)
    issuer: https://agent.buildkite.com   (default)
  host:                    or, without tokens: whatever this node may run
    organization: UUID
    pipelines: [UUID]
  signers: [FILE]          Ed25519 public keys in PEM; only what they have signed
  old: {pipelines: [UUID]} who gets SECRET_* in the old formats, bound to nothing

example:
  kbnode secretd --check
`,
}
