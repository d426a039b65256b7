// Package setup carries out kbnode's plan, apply and adopt: it gathers what a plan
// depends on, compares the plan with the machine, and has it applied. What a machine
// should have is decided in package plan, how it is changed in package apply.
package setup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/apply"
	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/schema/near"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Target says what kbnode plan and apply are to make of a machine. Fields that are
// empty have the defaults of [plan.Input].
type Target struct {
	File, Node, Endpoint string
	AllowSmall           bool
	Agent, AgentSHA256   string // a buildkite-agent to install, and its hash
	VerificationJWKS     string // a file of public keys
	Facts                string // a file with those of another machine
	Root                 string // of all files
	Release              string // kbnode's version
	apply.Options
}

// Elsewhere reports whether the target is a machine of which only the facts are known.
func (t *Target) Elsewhere() bool { return t.Facts != "" && t.Root == "/" }

// Recall fills in the settings that the command line leaves out with those of the last
// apply: queue file, node, AllowSmall, endpoint and keys. An endpoint or jwks that is
// given but empty clears the stored one.
func (t *Target) Recall(endpoint, jwks *string) error {
	c := &node.Config{}
	if !t.Elsewhere() {
		var err error
		c, err = node.ReadConfig(t.Root)
		if errors.Is(err, node.ErrNotSetUp) || err != nil && t.Force {
			c, err = &node.Config{}, nil
		}
		if err != nil {
			return &node.HintError{Err: fmt.Errorf("the settings of the apply before: %w", err), Hint: "--force uses the settings of the command line alone"}
		}
		if _, err := os.Stat(filepath.Join(t.Root, jwksPath)); err == nil {
			t.VerificationJWKS = filepath.Join(t.Root, jwksPath)
		}
	}
	if t.File = cmp.Or(t.File, c.QueueFile); t.File == "" {
		return node.Usagef("missing: FILE: no apply on this machine has named a queue file")
	}
	t.Node, t.Endpoint, t.AllowSmall = cmp.Or(t.Node, c.Node), c.Endpoint, t.AllowSmall || c.AllowSmall
	if endpoint != nil {
		t.Endpoint = *endpoint
	}
	if jwks != nil {
		t.VerificationJWKS = *jwks
	}
	return nil
}

// Machine returns this machine, or what lies below a directory.
func Machine(root string, log func(format string, args ...any)) (*apply.Machine, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	note := func(line string) { log("%s", line) }
	return &apply.Machine{
		Root: root, Systemd: &apply.Systemctl{Root: root, Log: note}, Users: &apply.Useradd{Root: root},
		Owners: os.Geteuid() == 0, Self: strings.TrimPrefix(self, strings.TrimSuffix(root, "/")),
	}, nil
}

// A Plan is what a machine should have, and what that means for it as it is.
type Plan struct {
	*plan.Plan
	Machine   *apply.Machine
	Actions   []resource.Action   // in the order in which apply does them
	Conflicts []resource.Conflict // what apply refuses without a flag
}

// Plan reads the machine and compares. Token is what the agents register with;
// nil: it is not known yet.
func (t *Target) Plan(ctx context.Context, token []byte, log func(format string, args ...any)) (*Plan, error) {
	m, err := Machine(t.Root, log)
	if err != nil {
		return nil, err
	}
	in, small, err := t.input(ctx)
	if err != nil {
		return nil, err
	}
	p := &Plan{Machine: m}
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
	if t.Elsewhere() {
		p.Notes = append(p.Notes, "only the facts of the machine are known: this is the plan for one that kbnode has not set up")
		p.compare(bare(in.Facts), t.Options)
		return p, nil
	}
	if err := p.takeOver(ctx, t.Options); err != nil {
		return nil, readable(err)
	}
	return p, nil
}

// takeOver looks at what is there, and adds what of older scripts has to go.
func (p *Plan) takeOver(ctx context.Context, o apply.Options) error {
	seeds, err := p.Machine.Seeds()
	if err != nil {
		return err
	}
	p.Set.Off = append(p.Set.Off, seeds.Units...)
	made, err := p.Machine.Made()
	if err != nil {
		return err
	}
	for _, f := range seeds.Tokens {
		if o.Adopt || slices.ContainsFunc(made, func(m resource.Made) bool { return m.Name == f.Path }) {
			p.Set.Files = append(p.Set.Files, f)
		}
	}
	if err := p.keepPrograms(made); err != nil {
		return err
	}
	have, err := p.Machine.Observe(ctx, &p.Set)
	if err != nil {
		return err
	}
	p.compare(have, o)
	if slices.ContainsFunc(p.Actions, dropsVerification) {
		p.Notes = append(p.Notes, "steps no longer need a signature: --verification-jwks is empty")
	}
	return nil
}

func (p *Plan) compare(have resource.State, o apply.Options) {
	var conflicts []resource.Conflict
	p.Actions, conflicts = resource.Compare(p.Set, have)
	p.Conflicts = o.Refused(p.Actions, conflicts)
}

// bare returns the state of a machine that facts describe and kbnode has not changed.
func bare(f *facts.Facts) resource.State {
	have := resource.State{Nodes: map[string]resource.Node{}}
	for _, dir := range []string{"/etc", "/etc/docker", node.UnitDir, "/usr/bin", "/usr/local/bin", "/var/lib"} {
		have.Nodes[dir] = resource.Node{Type: "dir", Mode: 0o755, Owner: "root", Group: "root"}
	}
	if d := f.Docker; d != nil {
		have.Units = map[string]resource.UnitState{"docker.service": {Found: true, Enabled: true, Active: d.Version != ""}}
		if d.DaemonJSON != "" {
			content := []byte(d.DaemonJSON)
			have.Nodes[node.DaemonJSON] = resource.Node{Type: "file", Content: content, SHA256: resource.Hash(content)}
		}
	}
	return have
}

// dropsVerification reports whether an agent that wanted signed steps wants none.
func dropsVerification(a resource.Action) bool {
	const key = "verification-jwks-file="
	return strings.Contains(a.Diff, "\n-"+key) && !strings.Contains(a.Diff, "\n+"+key)
}

// keepPrograms leaves programs that kbnode installed before, and that the plan
// finds there now.
func (p *Plan) keepPrograms(made []resource.Made) error {
	for _, m := range made {
		uses := m.Name == p.Config.Program || m.Name == p.Config.Agent.Path
		named := slices.ContainsFunc(p.Set.Copies, func(c resource.Copy) bool { return c.Path == m.Name })
		if m.Kind != resource.KindCopy || !uses || named {
			continue
		}
		from := filepath.Join(p.Machine.Root, m.Name)
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
func (p *Plan) addShared(path string, mode fs.FileMode, content []byte) {
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
		return &node.HintError{Err: err, Hint: "as root it can be read: sudo kbnode"}
	}
	return err
}

// input is what the plan depends on.
func (t *Target) input(ctx context.Context) (in *plan.Input, small []string, err error) {
	in = &plan.Input{
		Node: t.Node, Endpoint: t.Endpoint, AllowSmall: t.AllowSmall, Release: t.Release,
	}
	if t.VerificationJWKS != "" {
		in.VerificationJWKS = jwksPath
	}
	if in.File, small, err = ReadQueueFile(t.File, t.AllowSmall); err != nil {
		return nil, nil, err
	}
	if in.Path, err = filepath.Abs(t.File); err != nil {
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
		return nil, nil, node.Usagef("--node: got %s, want one of the queue file's nodes: %s%s", text.Quote(in.Node), strings.Join(names, ", "), near.Clause(in.Node, names))
	}
	if in.Rows, err = Rows(); err != nil {
		return nil, nil, err
	}
	if err := t.agent(ctx, in); err != nil {
		return nil, nil, err
	}
	return in, small, program(in)
}

// facts are this machine's, or those that kbnode facts wrote down.
func (t *Target) facts(ctx context.Context) (*facts.Facts, error) {
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
		return nil, node.Usagef("--facts: %s: got what kbnode facts does not print: %s", t.Facts, text.Line(err.Error(), 200))
	}
	return f, nil
}

// A Document is what kbnode plan --json prints.
type Document struct {
	Node      string              `json:"node"`
	Slots     []string            `json:"slots"`
	Actions   []resource.Action   `json:"actions"`   // in the order in which apply does them
	Conflicts []resource.Conflict `json:"conflicts"` // what apply refuses without a flag
	Missing   []plan.Missing      `json:"missing"`   // what the machine must have first
	Notes     []string            `json:"notes"`
}

// Document returns the plan for programs.
func (p *Plan) Document() *Document {
	d := &Document{
		Node: p.Config.Node, Slots: []string{}, Actions: append([]resource.Action{}, p.Actions...), Conflicts: append([]resource.Conflict{}, p.Conflicts...),
		Missing: append([]plan.Missing{}, p.Missing...), Notes: append([]string{}, p.Notes...),
	}
	for _, s := range p.Config.Slots {
		d.Slots = append(d.Slots, s.Name)
	}
	return d
}
