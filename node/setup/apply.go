package setup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/apply"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Complete plans, and installs the packages that are missing if install is set. The
// error says what else the machine lacks.
func (t *Target) Complete(ctx context.Context, token []byte, install bool, log func(format string, args ...any)) (*Plan, error) {
	p, err := t.Plan(ctx, token, log)
	if err != nil || len(p.Missing) == 0 {
		return p, err
	}
	if install && t.Root == "/" {
		if err := CheckToken(ctx, t.Endpoint, token, log); err != nil {
			return nil, err
		}
		for _, m := range p.Missing {
			if !m.Package {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s\n", m.Command)
			if err := installPackages(ctx, m.Command); err != nil {
				return nil, fmt.Errorf("installing %s: %w", m.What, err)
			}
		}
		if p, err = t.Plan(ctx, token, log); err != nil {
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
		return &node.HintError{Err: err, Hint: "packages are installed with --install-packages"}
	}
	return err
}

// installPackages runs a package manager, whose words go to the terminal.
func installPackages(ctx context.Context, command string) error {
	c := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	c.Env = append(system.Environ(), "DEBIAN_FRONTEND=noninteractive")
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	return c.Run()
}

// AdoptedToken returns the token of the agents that older scripts set up, if the
// machine has no other; nil otherwise.
func AdoptedToken(m *apply.Machine) ([]byte, error) {
	seeds, err := m.Seeds()
	if err != nil {
		return nil, readable(err)
	}
	if _, err := os.Lstat(filepath.Join(m.Root, node.TokenPath)); err != nil && notToken(seeds.Token) == "" {
		return seeds.Token, nil
	}
	return nil, nil
}

// Adopt takes over what older scripts set up. It reports whether it found anything to
// take over before it failed.
func Adopt(ctx context.Context, m *apply.Machine, o apply.Options, log func(format string, args ...any)) (did []resource.Action, found bool, err error) {
	seeds, err := m.Seeds()
	if err != nil {
		return nil, false, readable(err)
	}
	if len(seeds.Units)+len(seeds.Tokens) == 0 {
		return nil, false, nil
	}
	want := resource.Set{Off: seeds.Units, Files: seeds.Tokens}
	if _, err := os.Lstat(filepath.Join(m.Root, node.TokenPath)); seeds.Token != nil && err != nil {
		if why := notToken(seeds.Token); why != "" {
			log("note: the token in %s is not taken over: it is %s", text.Quote(seeds.Tokens[0].Path), why)
		} else {
			want.Files = append(want.Files, resource.File{Path: node.TokenPath, Mode: 0o600, Owner: "root", Group: "root", Content: seeds.Token, Secret: true})
		}
	}
	o.Adopt, o.Partial = true, true
	did, err = apply.Apply(ctx, m, &want, o)
	return did, true, err
}

// States returns what each slot does after apply, a line each, and the command to
// type next.
func (p *Plan) States(ctx context.Context) (lines []string, next string, err error) {
	var units []string
	for _, s := range p.Config.Slots {
		units = append(units, s.Unit())
	}
	states, err := p.Machine.Systemd.States(ctx, units)
	if err != nil {
		return nil, "", err
	}
	images := false
	for _, s := range p.Config.Slots {
		state := "takes jobs"
		if is := states[s.Unit()]; !is.Active {
			state = "does not run: kbnode doctor --slot " + s.Name
			if _, err := os.Stat(s.Paused()); err == nil {
				state = "is paused: kbnode status"
			} else if is.Held && s.Platform == plan.Docker {
				state, images = "waits for its image", true
			}
		}
		lines = append(lines, fmt.Sprintf("%s, %s: %s", s.Name, s.GPUType, state))
	}
	next = "sudo kbnode verify"
	if images {
		next = "sudo kbnode image update --all, then " + next
	}
	return lines, next, nil
}
