package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/apply"
	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/schema/near"
	"github.com/gpu-mode/kbgen/schema/text"
)

// target is what plan and apply are told of the machine.
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

// options are what there is leave for.
func (t *target) options() apply.Options {
	return apply.Options{Adopt: t.Adopt, Force: t.Force, DockerRestart: t.AllowDockerRestart, Drain: t.Drain}
}

// machineAt is the machine, or what lies below a directory.
func machineAt(root string, env *cli.Env) (*apply.Machine, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	note := func(line string) { fmt.Fprintf(env.Stderr, "kbnode: %s\n", line) }
	return &apply.Machine{
		Root: root, Systemd: &apply.Systemctl{Root: root, Log: note}, Users: &apply.Useradd{Root: root},
		Git: apply.Git, Owners: os.Geteuid() == 0, Self: strings.TrimPrefix(self, strings.TrimSuffix(root, "/")),
	}, nil
}

// wantRoot refuses where somebody else's machine would be changed halfway.
func wantRoot(m *apply.Machine) error {
	if m.Root == "/" && os.Geteuid() != 0 {
		return errors.New("want root: sudo kbnode")
	}
	return nil
}

// planned is a plan, and what it means for the machine as it is.
type planned struct {
	*plan.Plan
	machine   *apply.Machine
	actions   []resource.Action
	conflicts []resource.Conflict
}

// plan reads the machine and compares. Token is what the agents register with;
// nil: it is not known yet.
func (t *target) plan(ctx context.Context, env *cli.Env, token []byte) (*planned, error) {
	m, err := machineAt(t.Root, env)
	if err != nil {
		return nil, err
	}
	in, small, err := t.input(ctx)
	if err != nil {
		return nil, err
	}
	p := &planned{machine: m}
	if p.Plan, err = plan.Make(*in); err != nil {
		return nil, err
	}
	p.Notes = slices.Concat(small, p.Notes)
	p.addShared(node.TokenPath, 0o600, token)
	if t.VerificationJWKS != "" {
		keys, err := publicKeys(t.VerificationJWKS)
		if err != nil {
			return nil, err
		}
		p.addShared(jwksPath, 0o644, keys)
	}
	if m.Root != "/" { // nothing runs there
		for i := range p.Set.Units {
			p.Set.Units[i].Active = false
		}
	}
	if err := p.takeOver(ctx, t.options()); err != nil {
		return nil, readable(err)
	}
	return p, nil
}

// takeOver looks at what is there, and adds what of older scripts has to go.
func (p *planned) takeOver(ctx context.Context, o apply.Options) error {
	seeds, err := p.machine.Seeds()
	if err != nil {
		return err
	}
	off, files, err := p.machine.Takes(seeds)
	if err != nil {
		return err
	}
	p.Set.Off = append(p.Set.Off, off...)
	made, err := p.machine.Made()
	if err != nil {
		return err
	}
	for _, f := range files {
		if o.Adopt || slices.ContainsFunc(made, func(m resource.Made) bool { return m.Name == f.Path }) {
			p.Set.Files = append(p.Set.Files, f)
		}
	}
	if err := p.keepPrograms(made); err != nil {
		return err
	}
	have, err := p.machine.Observe(ctx, &p.Set)
	if err != nil {
		return err
	}
	var conflicts []resource.Conflict
	p.actions, conflicts = resource.Compare(p.Set, have)
	p.conflicts = o.Refused(p.actions, conflicts)
	if slices.ContainsFunc(p.actions, dropsVerification) {
		p.Notes = append(p.Notes, "steps had to be signed so far, and need not be any more: --verification-jwks is not given")
	}
	return nil
}

// dropsVerification reports whether an agent that wanted signed steps wants none.
func dropsVerification(a resource.Action) bool {
	const key = "verification-jwks-file="
	return strings.Contains(a.Diff, "\n-"+key) && !strings.Contains(a.Diff, "\n+"+key)
}

// keepPrograms leaves programs that kbnode installed before, and that the plan
// finds there now.
func (p *planned) keepPrograms(made []resource.Made) error {
	for _, m := range made {
		uses := m.Name == p.Config.Program || m.Name == p.Config.Agent.Path
		named := slices.ContainsFunc(p.Set.Copies, func(c resource.Copy) bool { return c.Path == m.Name })
		if m.Kind != resource.KindCopy || !uses || named {
			continue
		}
		from := filepath.Join(p.machine.Root, m.Name)
		sum, err := apply.HashFile(from)
		if err != nil {
			return fmt.Errorf("the program that kbnode installed: %w: name its file again", err)
		}
		p.Set.Copies = append(p.Set.Copies, resource.Copy{Path: m.Name, From: from, SHA256: sum, Mode: 0o755})
	}
	return nil
}

// addShared adds a file that all agents read, and start again for: the token, and
// the keys of signed steps. The token is the one that not everybody may read.
func (p *planned) addShared(path string, mode fs.FileMode, content []byte) {
	p.Set.Files = append(p.Set.Files, resource.File{Path: path, Mode: mode, Owner: "root", Group: "root", Content: content, Secret: mode == 0o600})
	for i := range p.Set.Units {
		if u := &p.Set.Units[i]; u.Drain && !slices.Contains(u.Uses, path) {
			u.Uses = append(u.Uses, path)
		}
	}
}

// readable says what mends an error of permission.
func readable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return cli.WithHint(err, "as root it can be read: sudo kbnode")
	}
	return err
}

// input is what the plan depends on.
func (t *target) input(ctx context.Context) (in *plan.Input, small []string, err error) {
	in = &plan.Input{
		Node: t.Node, Endpoint: t.Endpoint, PluginFrom: t.Plugin, PluginCommit: t.PluginCommit, AllowSmall: t.AllowSmall, Release: cli.Version(),
	}
	if t.VerificationJWKS != "" {
		in.VerificationJWKS = jwksPath
	}
	if in.File, small, err = readQueueFileOf(t.File, t.AllowSmall); err != nil {
		return nil, nil, err
	}
	if in.Facts, err = t.facts(ctx); err != nil {
		return nil, nil, err
	}
	if in.Node == "" {
		in.Node, _, _ = strings.Cut(in.Facts.Hostname, ".")
	}
	var names []string
	for i := range in.File.Nodes {
		names = append(names, in.File.Nodes[i].Name)
	}
	if !slices.Contains(names, in.Node) {
		return nil, nil, cli.Usagef("--node: got %s, want one of the queue file: %s", text.Quote(in.Node), near.Perhaps(in.Node, names))
	}
	if in.Rows, err = planRows(); err != nil {
		return nil, nil, err
	}
	if err := t.agent(ctx, in); err != nil {
		return nil, nil, err
	}
	return in, small, t.program(in)
}

// facts are this machine's, or those that kbnode facts wrote down.
func (t *target) facts(ctx context.Context) (*facts.Facts, error) {
	if t.Facts == "" {
		return facts.Read(ctx, facts.Host(t.Root))
	}
	raw, err := os.ReadFile(t.Facts)
	if err != nil {
		return nil, err
	}
	f := &facts.Facts{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		return nil, cli.Usagef("--facts: %s: got what kbnode facts does not print: %s", t.Facts, text.Line(err.Error(), 200))
	}
	return f, nil
}
