package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/apply"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/node/trial"
	"github.com/gpu-mode/kbgen/schema/text"
)

// applyCmd makes the machine what the queue file says.
type applyCmd struct {
	target
}

func (c *applyCmd) Run(ctx context.Context, env *cli.Env) error {
	m, err := machineAt(c.Root, env)
	if err != nil {
		return err
	}
	switch {
	case c.Drain < 0:
		return cli.Usagef("--drain: got %v, want 0 (as long as the last job takes) or more", c.Drain)
	case c.Facts != "" && m.Root == "/":
		return cli.Usagef("--facts: got another machine's for this one, want --root DIR with it")
	}
	if err := wantRoot(m); err != nil {
		return err
	}
	if err := trial.Restore(ctx, m); err != nil {
		return err
	}
	token, err := c.anyToken(env, m)
	if err != nil {
		return err
	}
	p, err := c.complete(ctx, env, token)
	if err != nil {
		return err
	}
	if len(p.actions) == 0 {
		_, err := fmt.Fprintln(env.Stdout, "nothing to do")
		return err
	}
	if err := checkToken(ctx, env, c.Endpoint, token); err != nil {
		return err
	}
	for _, note := range p.Notes {
		fmt.Fprintf(env.Stderr, "note: %s\n", note)
	}
	o := c.options()
	o.Log = progress(env)
	did, err := apply.Apply(ctx, p.machine, &p.Set, o)
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
		seeds, err := m.Seeds()
		if err != nil {
			return nil, readable(err)
		}
		if _, err := os.Lstat(filepath.Join(m.Root, node.TokenPath)); err != nil && notToken(seeds.Token) == "" {
			return seeds.Token, nil
		}
	}
	token, err := c.token(env, true)
	if err == nil && token == nil {
		err = cli.WithHint(cli.Usagef("the agents' token: got none"), "--token-file FILE, or --token-fd N, or a terminal to ask at")
	}
	return token, err
}

// complete plans, and installs what packages are missing where that is allowed.
func (c *applyCmd) complete(ctx context.Context, env *cli.Env, token []byte) (*planned, error) {
	p, err := c.plan(ctx, env, token)
	if err != nil || len(p.Missing) == 0 {
		return p, err
	}
	if c.InstallPackages && c.Root == "/" {
		if err := checkToken(ctx, env, c.Endpoint, token); err != nil {
			return nil, err
		}
		for _, m := range p.Missing {
			if !m.Package {
				continue
			}
			fmt.Fprintf(env.Stderr, "%s\n", m.Command)
			if err := install(ctx, m.Command); err != nil {
				return nil, fmt.Errorf("installing %s: %w", m.What, err)
			}
		}
		if p, err = c.plan(ctx, env, token); err != nil {
			return nil, err
		}
	}
	return p, lacking(p.Missing)
}

// lacking is the error of a machine that lacks something.
func lacking(missing []plan.Missing) error {
	if len(missing) == 0 {
		return nil
	}
	var b strings.Builder
	packages := false
	for _, m := range missing {
		fmt.Fprintf(&b, "\n  %s: %s\n    %s", m.What, m.Why, m.Command)
		packages = packages || m.Package
	}
	err := fmt.Errorf("the machine lacks what its slots need, and nothing was changed:%s", b.String())
	if packages {
		return cli.WithHint(err, "packages are installed with --install-packages")
	}
	return err
}

// install runs a package manager, whose words go to the terminal.
func install(ctx context.Context, command string) error {
	c := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	c.Env = append(system.Environ(), "DEBIAN_FRONTEND=noninteractive")
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	return c.Run()
}

// unfinished says how to go on after an error, where something was changed.
func unfinished(err error) error {
	var refused *apply.RefusedError
	if errors.As(err, &refused) || strings.Contains(err.Error(), "nothing was changed") {
		return err
	}
	return cli.WithHint(err, "the same command goes on where it ended; kbnode undo goes back")
}

// conclude says what was done, what runs now, and what comes next.
func (c *applyCmd) conclude(ctx context.Context, env *cli.Env, p *planned, did []resource.Action) error {
	fmt.Fprintf(env.Stdout, "changed: %s\n", counted(did))
	if p.machine.Root != "/" {
		_, err := fmt.Fprintf(env.Stdout, "below %s, where nothing runs\n", c.Root)
		return err
	}
	var units []string
	for i := range p.Config.Slots {
		units = append(units, p.Config.Slots[i].Unit())
	}
	states, err := p.machine.Systemd.States(ctx, units)
	if err != nil {
		return err
	}
	images := false
	for i := range p.Config.Slots {
		s := &p.Config.Slots[i]
		state := "takes jobs"
		if is := states[s.Unit()]; !is.Active {
			state = "does not run: kbnode doctor --slot " + s.Name
			if _, err := os.Stat(s.Paused()); err == nil {
				state = "is paused: kbnode status"
			} else if is.Held && s.Platform == plan.Docker {
				state, images = "waits for its image", true
			}
		}
		fmt.Fprintf(env.Stdout, "%s, %s: %s\n", s.Name, s.GPUType, state)
	}
	next := "sudo kbnode verify"
	if images {
		next = "sudo kbnode image update --all, then " + next
	}
	_, err = fmt.Fprintf(env.Stdout, "next: %s\n", next)
	return err
}

// adoptCmd takes over what older scripts set up.
type adoptCmd struct {
	Drain time.Duration `default:"0" placeholder:"DURATION"`
	Root  string        `default:"/" placeholder:"DIR"`
}

func (c *adoptCmd) Run(ctx context.Context, env *cli.Env) error {
	m, err := machineAt(c.Root, env)
	if err != nil {
		return err
	}
	if err := wantRoot(m); err != nil {
		return err
	}
	seeds, err := m.Seeds()
	if err != nil {
		return readable(err)
	}
	if len(seeds.Units)+len(seeds.Configs) == 0 {
		_, err := fmt.Fprintln(env.Stdout, "nothing to take over")
		return err
	}
	var want resource.Set
	if want.Off, want.Files, err = m.Takes(seeds); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(m.Root, node.TokenPath)); seeds.Token != nil && err != nil {
		if why := notToken(seeds.Token); why != "" {
			fmt.Fprintf(env.Stderr, "kbnode: note: the token in %s is not taken over: it is %s\n", text.Quote(seeds.Configs[0]), why)
		} else {
			want.Files = append(want.Files, resource.File{Path: node.TokenPath, Mode: 0o600, Owner: "root", Group: "root", Content: seeds.Token, Secret: true})
		}
	}
	did, err := apply.Apply(ctx, m, &want, apply.Options{Adopt: true, Partial: true, Drain: c.Drain, Log: progress(env)})
	if err != nil {
		return unfinished(err)
	}
	if len(did) == 0 {
		_, err := fmt.Fprintln(env.Stdout, "nothing to do")
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "taken over: %s\nnext: sudo kbnode apply FILE\n", counted(did))
	return err
}

// undoCmd makes the machine what it was.
type undoCmd struct {
	Purge              bool
	Force              bool
	AllowDockerRestart bool
	Drain              time.Duration `default:"0" placeholder:"DURATION"`
	Root               string        `default:"/" placeholder:"DIR"`
}

func (c *undoCmd) Run(ctx context.Context, env *cli.Env) error {
	m, err := machineAt(c.Root, env)
	if err != nil {
		return err
	}
	if err := wantRoot(m); err != nil {
		return err
	}
	if err := trial.Restore(ctx, m); err != nil {
		return err
	}
	done, err := apply.Undo(ctx, m, apply.UndoOptions{
		Purge: c.Purge, Force: c.Force, DockerRestart: c.AllowDockerRestart, Drain: c.Drain, Log: progress(env),
	})
	var refused *apply.RefusedError
	switch {
	case errors.As(err, &refused):
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
