// Package resource says what a machine should have: users, directories, files,
// units. It compares that with what the machine has, and says what would have to
// be done. It touches nothing; package apply does.
package resource

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// A Set is what a machine should have, in the order in which it is made.
type Set struct {
	Users  []User
	Dirs   []Dir
	Copies []Copy
	Files  []File
	Units  []Unit
	// Off are units of others that must neither run nor start at boot: agents that
	// would use the same devices.
	Off []string
	// Rolling has each agent stop and start by itself, after the files changed, so that
	// the others work on. It does not hold for a restart of docker, which all agents use.
	Rolling bool
}

// A User is a system user that cannot log in, with a group of its own name.
type User struct {
	Name string `json:"name"`
	Home string `json:"home"` // not made with it
}

// A Dir is a directory. Its content is not looked at.
type Dir struct {
	Path  string      `json:"path"`
	Mode  fs.FileMode `json:"mode"` // with sticky and set-group bits
	Owner string      `json:"owner"`
	Group string      `json:"group"`
}

// A File is a regular file, whole.
type File struct {
	Path    string      `json:"path"`
	Mode    fs.FileMode `json:"mode"`
	Owner   string      `json:"owner"`
	Group   string      `json:"group"`
	Content []byte      `json:"-"`
	// Marked files carry a line with the hash of the rest, by which kbnode knows its
	// own ones: Mark puts it there. Unmarked ones, the token and what is merged into
	// somebody else's file, are known by the ledger alone.
	Marked bool `json:"marked"`
	// Secret content is never shown, not even hashed.
	Secret bool `json:"secret,omitempty"`
	// Foreign is a file of somebody else's that ours is merged into: it may be there
	// before, and its content then is that of Content already.
	Foreign bool `json:"foreign,omitempty"`
}

// A Unit is a unit of systemd's and the state it should be in.
type Unit struct {
	Name    string `json:"name"`
	Enabled bool   `json:"enabled"`
	Active  bool   `json:"active"`
	// Uses are the files whose change makes a restart of the unit necessary.
	Uses []string `json:"uses,omitempty"`
	// Drain: the unit is an agent, which ends its job before it stops.
	Drain bool `json:"drain,omitempty"`
	// Asks: a restart touches others' work (docker), and is done with leave only.
	Asks bool `json:"asks,omitempty"`
}

// A Copy is a program that is installed from a file: the agent, kbnode itself.
type Copy struct {
	Path   string      `json:"path"`
	From   string      `json:"from"`
	SHA256 string      `json:"sha256"` // of From, in hex
	Mode   fs.FileMode `json:"mode"`
}

// Verbs of actions.
const (
	Make    = "make"
	Change  = "change"
	Remove  = "remove"  // what kbnode made
	Restore = "restore" // what was there before
	Start   = "start"
	Stop    = "stop"
	Restart = "restart"
	Enable  = "enable"
	Disable = "disable"
	Reload  = "reload"
)

// An Action is one thing that has to be done. Neighbours of kind unit with the
// same verb are done at once.
type Action struct {
	Kind string `json:"kind"`
	Verb string `json:"verb"`
	Name string `json:"name"` // a path, or that of a user or unit
	Why  string `json:"why,omitempty"`
	Diff string `json:"diff,omitempty"` // unified; of a secret nothing
	// Drain: an agent, which ends its job before it stops.
	Drain bool `json:"drain,omitempty"`
	// Asks: it touches others' work, and is done with leave only.
	Asks bool `json:"asks,omitempty"`

	want any
}

// Want returns the User, Dir, Copy, File or Unit that the action makes, or nil.
func (a *Action) Want() any { return a.want }

// Line says the action for people.
func (a *Action) Line() string {
	switch {
	case a.Verb == Reload:
		return "reload systemd"
	case a.Kind == KindOff:
		return a.Verb + " unit " + a.Name
	case a.Verb == Stop && a.Drain:
		return a.Verb + " unit " + a.Name + ", after its job"
	}
	return a.Verb + " " + a.Kind + " " + a.Name
}

// Impact returns a clause for the end of a line that says how the action affects
// running containers. It is empty if the action does not.
func (a *Action) Impact() string {
	if !a.Asks {
		return ""
	}
	return ", which stops every container unless live-restore is on"
}

// A Conflict is something that is not kbnode's to change.
type Conflict struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Why  string `json:"why"`
	// Flag of kbnode apply that gives leave; empty: a person has to clear it away.
	Flag string `json:"flag,omitempty"`
}

func (c Conflict) String() string {
	if c.Flag == "" {
		return fmt.Sprintf("%s: %s", c.Name, c.Why)
	}
	return fmt.Sprintf("%s: %s (%s)", c.Name, c.Why, c.Flag)
}

// Flags that a Conflict may name.
const (
	FlagAdopt = "--adopt"
	FlagForce = "--force"
)

// Summary sums actions up: "2 users, 3 files".
func Summary(actions []Action) string {
	var kinds []string
	n := map[string]int{}
	for _, a := range actions {
		kind := a.Kind
		switch kind {
		case KindOff:
			kind = KindUnit
		case KindReload:
			continue
		}
		if n[kind] == 0 {
			kinds = append(kinds, kind)
		}
		n[kind]++
	}
	words := map[string][2]string{KindDir: {"directory", "directories"}, KindCopy: {"copy", "copies"}}
	for i, kind := range kinds {
		word, ok := words[kind]
		if !ok {
			word = [2]string{kind, kind + "s"}
		}
		kinds[i] = fmt.Sprintf("%d %s", n[kind], word[min(n[kind], 2)-1])
	}
	return strings.Join(kinds, ", ")
}

// Kinds of things. Off is a unit of somebody else that has to be out of the way.
const (
	KindUser   = "user"
	KindDir    = "dir"
	KindCopy   = "copy"
	KindFile   = "file"
	KindUnit   = "unit"
	KindOff    = "off"
	KindReload = "reload" // of systemd's manager
)

// A State is what a machine has of the things that a Set or the ledger names.
type State struct {
	Users map[string]bool // those that are there, by name
	// Unfit says why a user that is there must not run jobs.
	Unfit map[string]string
	Nodes map[string]Node // by path; nothing is there: no entry
	Units map[string]UnitState
	Made  []Made // what the ledger says, oldest first
	// Pending is what an apply that ended early still owed: units to be restarted,
	// and KindReload.
	Pending []string
}

// A Node is what lies at a path.
type Node struct {
	Type    string      `json:"type"` // "file", "dir", "link" or "other"
	Mode    fs.FileMode `json:"mode"` // permissions, sticky and set-ID bits
	Owner   string      `json:"owner"`
	Group   string      `json:"group"`
	Content []byte      `json:"-"`                // of a file
	SHA256  string      `json:"sha256,omitempty"` // of Content
	Target  string      `json:"target,omitempty"` // of a link
}

// A UnitState is how a unit is.
type UnitState struct {
	Found   bool `json:"found"`
	Enabled bool `json:"enabled"`
	Static  bool `json:"static,omitempty"` // it cannot be enabled: no link pulls it in
	Active  bool `json:"active"`           // or on its way there, or from there
	// Held: it was started, and a condition of its own kept it from running (a
	// paused slot).
	Held bool `json:"held,omitempty"`
}

// Made is a thing that apply made or changed.
type Made struct {
	Kind, Name string
	Absent     bool     // there was nothing before
	Wrote      []string // fingerprints that it may have, by kbnode's hand; nil: not known
	Enabled    bool     // of a unit: what it was before
	Active     bool
	Drain      bool
	Asks       bool
}

// Fingerprint tells one content of a file or link from another. It is of
// a directory and of nothing the same each time.
func (n Node) Fingerprint() string {
	switch {
	case n.Type == "link":
		return "link:" + n.Target
	case n.Type == "file":
		return "sha256:" + n.SHA256
	}
	return n.Type
}

// Bytes is what stands in the file, with its mark.
func (f *File) Bytes() []byte {
	if f.Marked && !Owned(f.Content) {
		return mark(f.Content)
	}
	return f.Content
}

// Hash is that of content, as a Node has it.
func Hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// octal is a mode as chmod takes it.
func octal(mode fs.FileMode) string {
	n := mode.Perm()
	for bit, is := range map[fs.FileMode]fs.FileMode{0o1000: fs.ModeSticky, 0o2000: fs.ModeSetgid, 0o4000: fs.ModeSetuid} {
		if mode&is != 0 {
			n |= bit
		}
	}
	return fmt.Sprintf("%04o", uint32(n))
}

const markStart = "# kbnode sha256:"

// mark puts the line into a file by which kbnode knows its own ones: the hash of
// all other lines. It is the first line, of a script the second. Content that has
// a mark gets a new one.
func mark(content []byte) []byte {
	rest, _, _ := unmark(content)
	head, tail := shebang(rest)
	return slices.Concat(head, []byte(markStart+Hash(rest)+"\n"), tail)
}

// Owned reports whether the content was written by kbnode and is as it wrote it.
func Owned(content []byte) bool {
	rest, mark, ok := unmark(content)
	return ok && mark == Hash(rest)
}

// Marked reports whether the content was written by kbnode, changed since or not.
func Marked(content []byte) bool {
	_, _, ok := unmark(content)
	return ok
}

// unmark takes the mark out.
func unmark(content []byte) (rest []byte, mark string, ok bool) {
	head, tail := shebang(content)
	line, after, ok := bytes.Cut(tail, []byte("\n"))
	if !ok || !bytes.HasPrefix(line, []byte(markStart)) {
		return content, "", false
	}
	return slices.Concat(head, after), string(line[len(markStart):]), true
}

// shebang splits a script after its first line.
func shebang(content []byte) (head, tail []byte) {
	if !bytes.HasPrefix(content, []byte("#!")) {
		return nil, content
	}
	end := bytes.IndexByte(content, '\n') + 1
	return content[:end], content[end:]
}
