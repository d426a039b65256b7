package apply

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/node/system"
)

// The ledger is a journal, a JSON object a line, and beside it what was in files
// before, by hash.
const (
	journalPath = node.LedgerDir + "/journal"
	priorDir    = node.LedgerDir + "/prior"
	ledgerOwn   = "/var/lib/kbnode" // what the ledger lies in is kbnode's whatever else is in it
)

// prior is what was there before kbnode changed a thing.
type prior struct {
	Absent  bool        `json:"absent,omitempty"`
	Type    string      `json:"type,omitempty"` // a resource.Node's
	Mode    fs.FileMode `json:"mode,omitempty"`
	UID     int         `json:"uid,omitempty"`
	GID     int         `json:"gid,omitempty"`
	SHA256  string      `json:"sha256,omitempty"` // of a file's content, which is in priorDir
	Target  string      `json:"target,omitempty"`
	Enabled bool        `json:"enabled,omitempty"`
	Active  bool        `json:"active,omitempty"`
}

// record is a line of the journal.
type record struct {
	Version int    `json:"version,omitempty"` // of the first line
	Kind    string `json:"kind,omitempty"`
	Name    string `json:"name,omitempty"`
	// Prior is in the first record of a thing, Wrote in each before a change.
	Prior *prior `json:"prior,omitempty"`
	Wrote string `json:"wrote,omitempty"`
	// Gone: it is again what it was, and no longer kbnode's.
	Gone  bool     `json:"gone,omitempty"`
	Drain bool     `json:"drain,omitempty"`
	Asks  bool     `json:"asks,omitempty"`
	Uses  []string `json:"uses,omitempty"`
	// Pending are restarts and reloads that are to come; Cleared says that they came.
	Pending []string `json:"owes,omitempty"`
	Cleared []string `json:"paid,omitempty"`
}

// thing is what the ledger knows of one.
type thing struct {
	record // the first
	wrote  []string
}

type ledger struct {
	m       *Machine
	things  []*thing // oldest first
	pending []string
	file    *os.File // open for more; nil: nothing was written yet
	length  int64    // length of the journal up to its last whole line
	failed  error    // of a write, after which there is no other
}

// readLedger reads what there is. A last line without its end was never acted
// upon.
func (m *Machine) readLedger() (*ledger, error) {
	l := &ledger{m: m}
	raw, err := os.ReadFile(m.path(journalPath))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	l.length = int64(bytes.LastIndexByte(raw, '\n') + 1)
	n := 0
	for line := range bytes.Lines(raw[:l.length]) {
		n++
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s: line %d: got what is no record: %w", journalPath, n, err)
		}
		if n == 1 && r.Version != node.Version {
			return nil, fmt.Errorf("%s: got version %d, want %d: another kbnode wrote it", journalPath, r.Version, node.Version)
		}
		l.take(&r)
	}
	return l, nil
}

func (l *ledger) find(kind, name string) *thing {
	for _, t := range l.things {
		if t.Kind == kind && t.Name == name {
			return t
		}
	}
	return nil
}

// take adds a record to what is known.
func (l *ledger) take(r *record) {
	l.pending = append(l.pending, r.Pending...)
	l.pending = slices.DeleteFunc(l.pending, func(s string) bool { return slices.Contains(r.Cleared, s) })
	if r.Kind == "" {
		return
	}
	t := l.find(r.Kind, r.Name)
	switch {
	case r.Gone:
		l.things = slices.DeleteFunc(l.things, func(have *thing) bool { return have == t })
		return
	case t == nil:
		t = &thing{record: *r}
		l.things = append(l.things, t)
	case r.Kind == resource.KindUnit:
		t.Uses, t.Drain, t.Asks = r.Uses, r.Drain, r.Asks
	}
	if r.Wrote != "" && !slices.Contains(t.wrote, r.Wrote) {
		t.wrote = append(t.wrote, r.Wrote)
	}
}

// write adds a record, and returns when the disk has it.
func (l *ledger) write(r *record) error {
	if err := l.open(); err != nil {
		return err
	}
	if l.failed == nil {
		l.failed = l.line(r)
	}
	if l.failed != nil {
		return fmt.Errorf("%s: %w", journalPath, l.failed)
	}
	l.take(r)
	return nil
}

func (l *ledger) line(r *record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	half := len(line) / 2
	if _, err := l.file.Write(line[:half]); err != nil {
		return errors.Join(err, l.file.Truncate(l.length))
	}
	if err := l.m.step("journal, in the middle of a line"); err != nil {
		return err
	}
	if _, err := l.file.Write(line[half:]); err != nil {
		return errors.Join(err, l.file.Truncate(l.length)) // a full disk: what it has stays readable
	}
	l.length += int64(len(line))
	return l.m.sync(l.file)
}

// open makes the ledger where there is none, and cuts off a line that was not
// finished.
func (l *ledger) open() error {
	if l.file != nil {
		return nil
	}
	if err := os.MkdirAll(l.m.path(path.Dir(ledgerOwn)), 0o755); err != nil {
		return err
	}
	for _, dir := range []string{ledgerOwn, node.LedgerDir, priorDir} {
		mode := fs.FileMode(0o700)
		if dir == ledgerOwn {
			mode = 0o755
		}
		if err := os.Mkdir(l.m.path(dir), mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := l.m.syncDir(l.m.path(path.Dir(dir))); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(l.m.path(journalPath), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if err := f.Truncate(l.length); err != nil {
		f.Close()
		return err
	}
	if err := l.m.syncDir(l.m.path(node.LedgerDir)); err != nil {
		f.Close()
		return err
	}
	l.file = f
	if l.length > 0 {
		return nil
	}
	return l.line(&record{Version: node.Version})
}

func (l *ledger) close() {
	if l.file != nil {
		l.file.Close()
	}
}

// note is called before a thing is changed: what was there is kept, if it is the
// first time, and what will be.
func (l *ledger) note(r record) error {
	if t := l.find(r.Kind, r.Name); t != nil && r.Kind != resource.KindUnit && (r.Wrote == "" || slices.Contains(t.wrote, r.Wrote)) {
		return nil
	} else if t != nil {
		r.Prior = nil
		if r.Kind == resource.KindUnit && slices.Equal(t.Uses, r.Uses) && t.Drain == r.Drain {
			return nil
		}
		return l.write(&r)
	}
	if r.Prior == nil {
		var err error
		if r.Prior, err = l.before(r.Name); err != nil {
			return err
		}
	}
	return l.write(&r)
}

// before looks at what lies at a path, and keeps a file's content.
func (l *ledger) before(name string) (*prior, error) {
	info, err := os.Lstat(l.m.path(name))
	if errors.Is(err, fs.ErrNotExist) || name == ledgerOwn {
		return &prior{Absent: true}, nil
	}
	if err != nil {
		return nil, err
	}
	uid, gid := system.Owner(info)
	p := &prior{Type: typeOf(info.Mode()), Mode: permissions(info.Mode()), UID: uid, GID: gid}
	switch p.Type {
	case "link":
		p.Target, err = os.Readlink(l.m.path(name))
	case "file":
		p.SHA256, err = l.keep(l.m.path(name))
	}
	return p, err
}

// keep copies a file to where undo finds its content, by hash.
func (l *ledger) keep(name string) (string, error) {
	if err := l.open(); err != nil {
		return "", err
	}
	in, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer in.Close()
	temp := l.m.path(priorDir + "/new")
	sum, err := l.m.write(temp, in, l.m.sync)
	if err != nil {
		return "", err
	}
	if err := os.Rename(temp, l.m.path(priorDir+"/"+sum)); err != nil {
		return "", err
	}
	return sum, l.m.syncDir(l.m.path(priorDir))
}

// made is the ledger as a comparison needs it.
func (l *ledger) made() []resource.Made {
	var all []resource.Made
	for _, t := range l.things {
		wrote := t.wrote
		if before := t.Prior.fingerprint(); before != "" { // an apply may have ended before it wrote
			wrote = append(slices.Clone(wrote), before)
		}
		all = append(all, resource.Made{
			Kind: t.Kind, Name: t.Name, Absent: t.Prior.Absent, Wrote: wrote, Enabled: t.Prior.Enabled, Active: t.Prior.Active, Drain: t.Drain, Asks: t.Asks,
		})
	}
	return all
}

// fingerprint is that of what was there; empty: nothing was.
func (p *prior) fingerprint() string {
	if p.Absent || p.Type == "" {
		return ""
	}
	return resource.Node{Type: p.Type, SHA256: p.SHA256, Target: p.Target}.Fingerprint()
}

// sweep removes what an apply or undo that was killed left beside things.
func (l *ledger) sweep() error {
	for _, t := range l.things {
		switch t.Kind {
		case resource.KindCopy, resource.KindFile:
			if err := os.RemoveAll(temporary(l.m.path(t.Name))); err != nil {
				return err
			}
		}
	}
	return nil
}
