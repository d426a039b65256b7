package apply

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/node/system"
)

const maxContent = 16 << 20 // of a file that is compared by its text

// Observe says what a machine has of what a Set and its ledger name. It changes
// nothing, and waits for nobody.
func (m *Machine) Observe(ctx context.Context, want *resource.Set) (resource.State, error) {
	l, err := m.readLedger()
	if err != nil {
		return resource.State{}, err
	}
	return m.observe(ctx, want, l)
}

// Made is what the ledger says was made here, oldest first.
func (m *Machine) Made() ([]resource.Made, error) {
	l, err := m.readLedger()
	if err != nil {
		return nil, err
	}
	return l.made(), nil
}

// observer collects what is there.
type observer struct {
	m        *Machine
	accounts *accounts
	state    resource.State
	err      error
}

func (m *Machine) observe(ctx context.Context, want *resource.Set, l *ledger) (resource.State, error) {
	a, err := m.accounts()
	if err != nil {
		return resource.State{}, err
	}
	o := &observer{m: m, accounts: a, state: resource.State{
		Users: map[string]bool{}, Unfit: map[string]string{}, Nodes: map[string]resource.Node{}, Made: l.made(), Pending: l.pending,
	}}
	for _, u := range want.Users {
		o.user(u.Name)
	}
	for _, d := range want.Dirs {
		o.node(d.Path, resource.KindDir, d.Owner, d.Group)
	}
	for _, p := range want.Copies {
		o.node(p.Path, resource.KindCopy, "root", "root")
	}
	for _, f := range want.Files {
		o.node(f.Path, resource.KindFile, f.Owner, f.Group)
	}
	units := append([]string{}, want.Off...)
	for _, u := range want.Units {
		units = append(units, u.Name)
	}
	for _, t := range l.things {
		switch t.Kind {
		case resource.KindUser:
			o.user(t.Name)
		case resource.KindUnit, resource.KindOff:
			units = append(units, t.Name)
		default:
			o.node(t.Name, t.Kind, "root", "root")
		}
	}
	if o.err == nil && len(units) > 0 {
		o.state.Units, o.err = m.Systemd.States(ctx, units)
	}
	return o.state, o.err
}

func (o *observer) user(name string) {
	if _, o.state.Users[name] = o.accounts.users[name]; o.state.Users[name] && o.err == nil {
		o.state.Unfit[name], o.err = o.m.unfit(name)
	}
}

// node looks at a path and at the directories that it lies in.
func (o *observer) node(name, kind, owner, group string) {
	if _, ok := o.state.Nodes[name]; ok || o.err != nil {
		return
	}
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if _, ok := o.state.Nodes[dir]; ok {
			continue
		}
		if info, err := os.Stat(o.m.path(dir)); err == nil { // may be a link
			o.state.Nodes[dir] = o.describe(info, "root", "root")
		}
	}
	info, err := os.Lstat(o.m.path(name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return
	}
	if err != nil {
		o.err = err
		return
	}
	n := o.describe(info, owner, group)
	switch {
	case n.Type == "link":
		n.Target, o.err = os.Readlink(o.m.path(name))
	case n.Type == "file" && kind == resource.KindFile && info.Size() <= maxContent:
		n.Content, o.err = os.ReadFile(o.m.path(name))
		n.SHA256 = resource.Hash(n.Content)
	case n.Type == "file":
		n.SHA256, o.err = HashFile(o.m.path(name))
	}
	o.state.Nodes[name] = n
}

func (o *observer) describe(info fs.FileInfo, owner, group string) resource.Node {
	n := resource.Node{Type: typeOf(info.Mode()), Mode: permissions(info.Mode()), Owner: owner, Group: group}
	if o.m.Owners {
		uid, gid := system.Owner(info)
		n.Owner, n.Group = name(o.accounts.users, uid, owner), name(o.accounts.groups, gid, group)
	}
	return n
}

// HashFile is the SHA-256 of a file's content, in hex.
func HashFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Seeds are what Kernelbot's older scripts set up on a machine: agents on the
// host, all with every GPU and a token that everybody may read.
type Seeds struct {
	Units  []string        // agents, which must not run
	Tokens []resource.File // files that hold a token, as only root may read them
	Token  []byte          // the first of them; nil: none
}

var (
	seedUnits = []string{"buildkite-agent-gpu*.service", "buildkite-agent@gpu*.service"}
	// The agent's own package has buildkite-agent.cfg, and no file token.
	seedConfigs = []string{"/etc/buildkite-agent/token", "/etc/buildkite-agent/buildkite-agent-gpu*.cfg"}
	seedToken   = regexp.MustCompile(`(?m)^\s*(?:token|BUILDKITE_AGENT_TOKEN)\s*=\s*"?([^"\s]+)"?\s*$`)
)

// Seeds recognises them by the names of their files. Files of the agent's own package
// are never among them.
func (m *Machine) Seeds() (*Seeds, error) {
	s := &Seeds{}
	for _, pattern := range seedUnits {
		for _, dir := range []string{node.UnitDir, node.UnitDir + "/*.wants"} { // an instance of a template is a link only
			found, err := filepath.Glob(m.path(dir + "/" + pattern))
			if err != nil {
				return nil, err
			}
			for _, name := range found {
				s.Units = append(s.Units, filepath.Base(name))
			}
		}
	}
	slices.Sort(s.Units)
	s.Units = slices.Compact(s.Units)
	for _, pattern := range seedConfigs {
		found, err := filepath.Glob(m.path(pattern))
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			if err := s.config(m, name); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *Seeds) config(m *Machine, name string) error {
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrPermission) { // somebody tightened it, and we are not root
		return nil
	}
	if err != nil {
		return err
	}
	found := seedToken.FindSubmatch(content)
	if found == nil || bytes.HasPrefix(found[1], []byte("$")) || bytes.Equal(found[1], []byte("xxx")) {
		return nil // a placeholder, a variable, or a file that no older script wrote
	}
	if s.Token == nil {
		s.Token = found[1]
	}
	rel, err := filepath.Rel(m.Root, name)
	s.Tokens = append(s.Tokens, resource.File{Path: "/" + rel, Mode: 0o600, Owner: "root", Group: "root", Content: content, Secret: true, Foreign: true})
	return err
}
