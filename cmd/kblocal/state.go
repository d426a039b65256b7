package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/session"
	"github.com/gpu-mode/kbgen/local/steps"
)

// stateFlags are common to all commands.
type stateFlags struct {
	Dir     string   `placeholder:"DIR" help:"keep state, logs and artifacts in DIR; default a temporary directory"`
	Agent   string   `var:"KBLOCAL_AGENT" placeholder:"PATH" help:"the buildkite-agent to use; default the one beside kblocal, else on PATH"`
	Plugins string   `placeholder:"DIR" help:"take plugins from DIR/NAME and DIR/OWNER/NAME, git clones, or from DIR/NAME@VERSION; default bin/plugins beside kblocal"`
	Secrets []string `name:"secrets-file" sep:"none" placeholder:"F" help:"the secret store: lines as of --env-file, never shown"`
}

// open starts the stand-in without agents.
func (f *stateFlags) open(env *cli.Env, opts local.Options) (*session.Session, error) {
	opts.Version, opts.AgentEnv = cli.Version(), env.Environ()
	var err error
	if opts.AgentBinary, err = f.agent(env); err != nil {
		return nil, err
	}
	if opts.Secrets, err = f.secrets(env); err != nil {
		return nil, err
	}
	if opts.Plugins, err = session.Plugins(f.Plugins); err != nil {
		return nil, err
	}
	return session.Open(f.Dir, opts)
}

// agent finds the buildkite-agent binary.
func (f *stateFlags) agent(env *cli.Env) (string, error) {
	path, err := session.FindAgent(f.Agent, env.Getenv("PATH"))
	if errors.Is(err, session.ErrNoAgent) {
		err = cli.WithHint(err, "make agent builds one, --agent PATH names one")
	}
	return path, err
}

// plain reports whether the environment asks for no colours.
func plain(env *cli.Env) bool { return env.Getenv("NO_COLOR") != "" }

// secrets is the secret store: of the files, in order.
func (f *stateFlags) secrets(env *cli.Env) (map[string]string, error) {
	out := map[string]string{}
	for _, file := range f.Secrets {
		if err := session.ReadEnvFile(out, file, env.LookupEnv); err != nil {
			return nil, fmt.Errorf("--secrets-file: %w", err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(out)) {
		if err := steps.CheckSecretKey(key); err != nil {
			return nil, cli.Usagef("--secrets-file: a secret's name: %v", err)
		}
	}
	return out, nil
}
