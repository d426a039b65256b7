package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node/apply"
	"github.com/gpu-mode/kbgen/node/setup"
	"golang.org/x/term"
)

// target are the flags that plan and apply share.
type target struct {
	File               string        `arg:"" name:"file"`
	Node               string        `placeholder:"NAME" help:"the node of the queue file; default the host's name"`
	Endpoint           string        `placeholder:"URL" help:"the URL of the agent API; default Buildkite's"`
	TokenFile          string        `placeholder:"FILE" xor:"token" help:"a file with the cluster's agent token; default the token used before, else a prompt"`
	TokenFD            *int          `name:"token-fd" placeholder:"N" xor:"token" help:"a file descriptor to read the token from"`
	AllowSmall         bool          `help:"report a machine smaller than its row promises as a note; for tests"`
	Agent              string        `placeholder:"FILE" help:"the buildkite-agent to install"`
	AgentSHA256        string        `name:"agent-sha256" placeholder:"HEX" help:"the SHA-256 of that file"`
	Plugin             string        `placeholder:"URL" help:"the docker plugin's repository, or a directory"`
	PluginCommit       string        `placeholder:"HEX" help:"the commit of a fork of the plugin; kbnode knows that of v5.13.0"`
	VerificationJWKS   string        `name:"verification-jwks" placeholder:"FILE" help:"a file of keys; steps must be signed by one of them"`
	Adopt              bool          `help:"replace files that kbnode does not manage, and the agents of older scripts"`
	Force              bool          `help:"replace files that were changed by hand"`
	AllowDockerRestart bool          `help:"let apply restart docker, which ends containers unless live-restore is on"`
	InstallPackages    bool          `help:"install the distribution's packages that plan names"`
	Drain              time.Duration `default:"0" placeholder:"DURATION" help:"how long to wait for running jobs; 0: as long as they take"`

	Facts string `placeholder:"FILE" help:"with --root: a file with what kbnode facts printed on another machine"`
	Root  string `default:"/" placeholder:"DIR" help:"change the files below DIR, and start nothing"`
}

func (t *target) target() *setup.Target {
	return &setup.Target{
		File: t.File, Node: t.Node, Endpoint: t.Endpoint, AllowSmall: t.AllowSmall, Agent: t.Agent, AgentSHA256: t.AgentSHA256,
		Plugin: t.Plugin, PluginCommit: t.PluginCommit, VerificationJWKS: t.VerificationJWKS, Facts: t.Facts, Root: t.Root, Release: cli.Version(),
		Options: apply.Options{Adopt: t.Adopt, Force: t.Force, DockerRestart: t.AllowDockerRestart, Drain: t.Drain},
	}
}

// token takes the agents' token from where the flags say, else from the machine, else
// from the terminal if ask is set.
func (t *target) token(env *cli.Env, ask bool) ([]byte, error) {
	var prompt func() ([]byte, error)
	if f, ok := env.Stdin.(*os.File); ok && ask && term.IsTerminal(int(f.Fd())) {
		prompt = func() ([]byte, error) { return askToken(env, f) }
	}
	return setup.Token(t.Root, t.TokenFile, t.TokenFD, prompt)
}

func askToken(env *cli.Env, terminal *os.File) ([]byte, error) {
	fmt.Fprint(env.Stderr, "Agent token of the cluster (not shown): ")
	raw, err := term.ReadPassword(int(terminal.Fd()))
	fmt.Fprintln(env.Stderr)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return raw, err
}

// machine returns the machine below root, which only root may change.
func machine(root string, env *cli.Env) (*apply.Machine, error) {
	m, err := setup.Machine(root, logger(env))
	if err == nil && m.Root == "/" && os.Geteuid() != 0 {
		err = errors.New("want root: sudo kbnode")
	}
	return m, err
}
