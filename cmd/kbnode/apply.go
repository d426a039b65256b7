package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/apply"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/node/setup"
	"github.com/gpu-mode/kbgen/node/trial"
)

// exitChanges is kbnode plan's status when there is something to do.
const exitChanges = 2

// planCmd says what apply would do.
type planCmd struct {
	target
	Diff bool `help:"print each change, with a diff for each file"`
	JSON bool `name:"json" help:"print one JSON document; schema: schema/published/node-plan.json"`
}

func (c *planCmd) Run(ctx context.Context, env *cli.Env) error {
	t, err := c.target.target()
	if err != nil {
		return public(err)
	}
	var token []byte
	if !t.Elsewhere() {
		if token, err = c.token(env, false); err != nil {
			return public(err)
		}
	}
	p, err := t.Plan(ctx, token, logger(env))
	if err != nil {
		return public(err)
	}
	if c.JSON {
		err = cli.PrintJSON(env.Stdout, p.Document())
	} else {
		err = p.Write(env.Stdout, c.Diff)
	}
	if err == nil && len(p.Actions)+len(p.Missing) > 0 {
		return &cli.ExitError{Status: exitChanges}
	}
	return err
}

// linePrinter returns a function that prints a line on stderr without a prefix.
func linePrinter(env *cli.Env) func(format string, args ...any) {
	return func(format string, args ...any) { fmt.Fprintf(env.Stderr, format+"\n", args...) }
}

// progress prints what is done while it is done.
func progress(env *cli.Env) func(string) {
	return func(line string) { fmt.Fprintf(env.Stderr, "%s\n", line) }
}

// target are the flags that plan and apply share.
type target struct {
	File             string  `arg:"" optional:"" name:"file"`
	Node             string  `placeholder:"NAME" help:"the node of the queue file; default the one used before, else the host's name"`
	Endpoint         *string `placeholder:"URL" help:"the URL of the agent API; default the one used before, else Buildkite's"`
	TokenFile        string  `placeholder:"FILE" xor:"token" help:"a file with the cluster's agent token; default the token used before, else a prompt"`
	TokenFD          *int    `name:"token-fd" placeholder:"N" xor:"token" help:"a file descriptor to read the token from"`
	AllowSmall       bool    `help:"accept a machine smaller than its row promises, with a note; later runs remember this; for tests"`
	VerificationJWKS *string `name:"verification-jwks" placeholder:"FILE" help:"accept only steps signed by a key in this file; default the keys used before, \"\" for none"`
	Adopt            bool    `help:"replace files that kbnode does not manage, and the agents of older scripts"`
	InstallPackages  bool    `help:"install the distribution's packages that plan names"`
	renewal
}

// renewal holds the flags that plan, apply and upgrade share.
type renewal struct {
	Agent              string        `placeholder:"FILE" help:"the buildkite-agent to install, or to replace the one that kbnode installed"`
	AgentSHA256        string        `name:"agent-sha256" placeholder:"HEX" help:"the SHA-256 of that file"`
	Force              bool          `help:"replace files that were changed by hand"`
	AllowDockerRestart bool          `help:"let apply restart docker, which ends containers unless live-restore is on"`
	Drain              time.Duration `default:"0" placeholder:"DURATION" help:"how long to wait for running jobs; 0: as long as they take"`

	Facts string `placeholder:"FILE" help:"the output of kbnode facts from another machine; apply needs --root with it"`
	Root  string `default:"/" placeholder:"DIR" help:"change the files below DIR, and start nothing"`
}

func (t *target) target() (*setup.Target, error) {
	root, err := filepath.Abs(t.Root)
	if err != nil {
		return nil, err
	}
	completed := &setup.Target{
		File: t.File, Node: t.Node, AllowSmall: t.AllowSmall, Agent: t.Agent, AgentSHA256: t.AgentSHA256,
		Facts: t.Facts, Root: root, Release: cli.Version(),
		Options: apply.Options{Adopt: t.Adopt, Force: t.Force, DockerRestart: t.AllowDockerRestart, Drain: t.Drain},
	}
	return completed, completed.Recall(t.Endpoint, t.VerificationJWKS)
}

// token takes the agents' token from where the flags say, else from the machine, else
// from the terminal if ask is set.
func (t *target) token(env *cli.Env, ask bool) ([]byte, error) {
	var prompt func() ([]byte, error)
	if f, ok := env.Stdin.(*os.File); ok && ask && term.IsTerminal(int(f.Fd())) {
		prompt = func() ([]byte, error) { return askToken(env, f) }
	}
	return setup.Token(t.Root, t.TokenFile, t.TokenFD, prompt, linePrinter(env))
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

// applyCmd makes the machine what the queue file says.
type applyCmd struct {
	target
}

func (c *applyCmd) Run(ctx context.Context, env *cli.Env) error { return c.apply(ctx, env, false) }

// upgradeCmd is apply with the settings of before, slot by slot.
type upgradeCmd struct {
	renewal
}

func (c *upgradeCmd) Run(ctx context.Context, env *cli.Env) error {
	if _, err := node.ReadConfig(c.Root); err != nil {
		return err
	}
	return (&applyCmd{target{renewal: c.renewal}}).apply(ctx, env, true)
}

func (c *applyCmd) apply(ctx context.Context, env *cli.Env, rolling bool) error {
	t, err := c.target.target()
	switch {
	case err != nil:
		return public(err)
	case c.Drain < 0:
		return cli.Usagef("--drain: got %v, want 0 (as long as the last job takes) or more", c.Drain)
	case t.Elsewhere():
		return cli.Usagef("--facts: got another machine's for this one, want --root DIR with it")
	}
	m, err := machine(t.Root, env)
	if err != nil {
		return err
	}
	if err := trial.Restore(ctx, m); err != nil {
		return err
	}
	token, err := c.anyToken(env, m)
	if err != nil {
		return public(err)
	}
	note := linePrinter(env)
	p, err := t.Complete(ctx, token, c.InstallPackages, note)
	if err != nil {
		return public(err)
	}
	for _, line := range p.Notes {
		note("note: %s", line)
	}
	if len(p.Actions) == 0 {
		_, err := fmt.Fprintln(env.Stdout, "nothing to do")
		return err
	}
	if err := setup.CheckToken(ctx, t.Endpoint, token, note); err != nil {
		return public(err)
	}
	t.Log, p.Set.Rolling = progress(env), rolling
	did, err := apply.Apply(ctx, p.Machine, &p.Set, t.Options)
	var starts *apply.StartError
	switch {
	case errors.As(err, &starts):
		return cli.WithHint(errors.Join(err, c.conclude(ctx, env, p, did)), "kbnode doctor says why; kbnode apply starts it again")
	case err != nil:
		return unfinished(err)
	}
	return c.conclude(ctx, env, p, did)
}

// anyToken is the token that the flags name, the one of before, or with --adopt
// that of the agents which are taken over.
func (c *applyCmd) anyToken(env *cli.Env, m *apply.Machine) ([]byte, error) {
	if c.Adopt && c.TokenFile == "" && c.TokenFD == nil {
		if token, err := setup.AdoptedToken(m); err != nil || token != nil {
			return token, err
		}
	}
	token, err := c.token(env, true)
	if err == nil && token == nil {
		err = cli.WithHint(cli.Usagef("the agents' token: got none"), "--token-file FILE, or --token-fd N, or a terminal to ask at")
	}
	return token, err
}

// unfinished says how to go on after an error, where something was changed.
func unfinished(err error) error {
	if errors.As(err, new(*apply.Refusal)) || strings.Contains(err.Error(), "nothing was changed") {
		return err
	}
	return cli.WithHint(err, "the same command goes on where it ended; kbnode undo goes back")
}

// conclude says what was done, what runs now, and what comes next.
func (c *applyCmd) conclude(ctx context.Context, env *cli.Env, p *setup.Plan, did []resource.Action) error {
	fmt.Fprintf(env.Stdout, "changed: %s\n", resource.Summary(did))
	if p.Machine.Root != "/" {
		_, err := fmt.Fprintf(env.Stdout, "below %s, where nothing runs\n", c.Root)
		return err
	}
	lines, next, err := p.States(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "%s\nnext: %s\n", strings.Join(lines, "\n"), next)
	return err
}

// adoptCmd takes over what older scripts set up.
type adoptCmd struct {
	Drain time.Duration `default:"0" placeholder:"DURATION" help:"how long to wait for running jobs; 0: as long as they take"`
	Root  string        `default:"/" placeholder:"DIR" help:"change the files below DIR, and stop nothing"`
}

func (c *adoptCmd) Run(ctx context.Context, env *cli.Env) error {
	m, err := machine(c.Root, env)
	if err != nil {
		return err
	}
	did, found, err := setup.Adopt(ctx, m, apply.Options{Drain: c.Drain, Log: progress(env)}, logger(env))
	switch {
	case err != nil && !found:
		return public(err)
	case err != nil:
		return unfinished(err)
	case !found:
		_, err = fmt.Fprintln(env.Stdout, "nothing to take over")
	case len(did) == 0:
		_, err = fmt.Fprintln(env.Stdout, "nothing to do")
	default:
		_, err = fmt.Fprintf(env.Stdout, "taken over: %s\nnext: sudo kbnode apply FILE\n", resource.Summary(did))
	}
	return err
}

// undoCmd makes the machine what it was.
type undoCmd struct {
	Purge              bool          `help:"remove what slots left on the disk and the images that kbnode pulled as well"`
	Force              bool          `help:"remove files that were changed by hand as well"`
	AllowDockerRestart bool          `help:"restart docker, so that it forgets its settings at once"`
	Drain              time.Duration `default:"0" placeholder:"DURATION" help:"how long to wait for running jobs; 0: as long as they take"`
	Root               string        `default:"/" placeholder:"DIR" help:"change the files below DIR, and stop nothing"`
}

func (c *undoCmd) Run(ctx context.Context, env *cli.Env) error {
	m, err := machine(c.Root, env)
	if err != nil {
		return err
	}
	if err := trial.Restore(ctx, m); err != nil {
		return err
	}
	o := apply.Options{Force: c.Force, DockerRestart: c.AllowDockerRestart, Drain: c.Drain, Log: progress(env)}
	if m.Root == "/" { // docker is this machine's
		o.Purge = setup.ImageRemover(m.Root, linePrinter(env))
	}
	done, err := apply.Undo(ctx, m, o, c.Purge)
	switch {
	case errors.As(err, new(*apply.Refusal)):
		return err
	case err != nil:
		return cli.WithHint(err, "kbnode undo goes on where it ended")
	case !done:
		_, err = fmt.Fprintln(env.Stdout, "nothing to undo")
		return err
	}
	_, err = fmt.Fprintln(env.Stdout, "undone: the machine is what it was")
	return err
}
