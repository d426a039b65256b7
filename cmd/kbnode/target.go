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
	File               string `arg:"" name:"file"`
	Node               string `placeholder:"NAME"`
	Endpoint           string `placeholder:"URL"`
	TokenFile          string `placeholder:"FILE" xor:"token"`
	TokenFD            *int   `name:"token-fd" placeholder:"N" xor:"token"`
	AllowSmall         bool
	Agent              string `placeholder:"FILE"`
	AgentSHA256        string `name:"agent-sha256" placeholder:"HEX"`
	Plugin             string `placeholder:"URL"`
	PluginCommit       string `placeholder:"HEX"`
	VerificationJWKS   string `name:"verification-jwks" placeholder:"FILE"`
	Adopt              bool
	Force              bool
	AllowDockerRestart bool
	InstallPackages    bool
	Drain              time.Duration `default:"0" placeholder:"DURATION"`

	Facts string `placeholder:"FILE"`
	Root  string `default:"/" placeholder:"DIR"`
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
