package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/session"
	"github.com/gpu-mode/kbgen/local/steps"
)

type runCmd struct {
	stateFlags `embed:""`
	File       string        `arg:""`
	Env        []string      `sep:"none" placeholder:"NAME=VALUE" help:"a variable of the build; may be repeated"`
	EnvFile    []string      `sep:"none" placeholder:"FILE" help:"lines NAME=VALUE, or NAME to pass on; --env beats them"`
	Here       bool          `help:"run jobs in this directory instead of a checkout"`
	Step       []string      `sep:"none" placeholder:"KEY" help:"run only this step, the others are skipped; may be repeated"`
	List       bool          `help:"list the steps and run nothing"`
	DryRun     bool          `help:"print the pipeline as it would be uploaded and run nothing"`
	Watch      bool          `help:"run again whenever FILE changes, until interrupted"`
	Host       []string      `placeholder:"docker" help:"run steps of the docker plugin ON THIS MACHINE, without it"`
	Unblock    []string      `sep:"none" placeholder:"KEY" help:"answer the block or input step KEY ; '*' answers all"`
	Field      []string      `sep:"none" placeholder:"KEY=VALUE" help:"the answer to a field of such a step; may be repeated"`
	Agents     int           `default:"2" placeholder:"N" help:"agents per queue"`
	Branch     string        `placeholder:"NAME" help:"branch of the build; default the current one, else main"`
	Message    string        `placeholder:"TEXT" help:"message of the build"`
	Timeout    time.Duration `placeholder:"D" help:"cancel the build after D, as 90s or 10m; default never"`
	JSON       bool          `name:"json" help:"print the build as the REST API shows it; logs go to stderr"`
	Quiet      bool          `help:"no job logs"`
}

func (c *runCmd) Run(ctx context.Context, env *cli.Env) (err error) {
	if c.Agents < 1 || c.Agents > 64 {
		return cli.Usagef("--agents %d: want 1 to 64", c.Agents)
	}
	for _, plugin := range c.Host {
		if plugin != "docker" {
			return cli.Usagef("--host %q: want docker, the one plugin whose steps can run without it", plugin)
		}
	}
	if c.Watch && c.File == "-" {
		return cli.Usagef("--watch: want a file, standard input does not change")
	}
	vars, err := c.variables(env)
	if err != nil {
		return err
	}
	text, err := session.Read(c.File, env.Stdin)
	if err != nil {
		return err
	}
	if c.List || c.DryRun {
		agent, err := c.agent(env)
		if err != nil {
			return err
		}
		return session.Preview{Agent: agent, Environ: env.Environ(), Vars: vars, YAML: c.DryRun}.Print(ctx, env.Stdout, text)
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("not done after %s", c.Timeout))
		defer cancel()
	}
	s, err := c.open(env, local.Options{
		Log: func(format string, args ...any) { fmt.Fprintf(env.Stderr, "kblocal: "+format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r := session.Run{
		Session: s, File: c.File, Here: c.Here, Step: c.Step, OnHost: len(c.Host) > 0, Agents: c.Agents, Branch: c.Branch, Message: c.Message,
		Shown:  session.Shown{Logs: !c.Quiet, One: true, Plain: plain(env)},
		Stdout: env.Stdout, Stderr: env.Stderr,
		Vars:    func() (map[string]string, error) { return c.variables(env) }, // an --env-file may have changed, too
		Unblock: func(b engine.Build) error { return c.unblock(env, s, b) },
	}
	if c.JSON {
		r.Print = func(build any) error { return cli.PrintJSON(env.Stdout, build) }
	}
	if c.Watch {
		err = r.Rerun(ctx, text)
	} else {
		err = r.Once(ctx, text, vars)
	}
	if errors.Is(err, session.ErrNotPassed) {
		return &cli.ExitError{Status: cli.ExitFailed}
	}
	return err
}

// variables are the build's: of the files, in order, and over them --env.
func (c *runCmd) variables(env *cli.Env) (map[string]string, error) {
	out := map[string]string{}
	for _, file := range c.EnvFile {
		if err := session.ReadEnvFile(out, file, env.LookupEnv); err != nil {
			return nil, fmt.Errorf("--env-file: %w", err)
		}
	}
	for _, item := range c.Env {
		name, value, ok := strings.Cut(item, "=")
		if !ok || name == "" {
			return nil, cli.Usagef("--env %q: want NAME=VALUE", item)
		}
		out[name] = value
	}
	if err := steps.CheckEnv(out); err != nil {
		return nil, cli.Usagef("--env: %v", err)
	}
	return out, nil
}
