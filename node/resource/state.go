package resource

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
)

// Kinds of things. Off is a unit of somebody else that has to be out of the way.
const (
	KindUser   = "user"
	KindDir    = "dir"
	KindCopy   = "copy"
	KindClone  = "clone"
	KindFile   = "file"
	KindUnit   = "unit"
	KindOff    = "off"
	KindReload = "reload" // of systemd's manager
)

// A State is what a machine has of the things that a Set or the ledger names.
type State struct {
	Users map[string]bool // those that are there, by name
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
	Commit  string      `json:"commit,omitempty"` // of a directory that is a repository with a detached HEAD
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

// Fingerprint tells one content of a file, link or clone from another. It is of
// a directory and of nothing the same each time.
func (n Node) Fingerprint() string {
	switch {
	case n.Type == "link":
		return "link:" + n.Target
	case n.Type == "file":
		return "sha256:" + n.SHA256
	case n.Commit != "":
		return "commit:" + n.Commit
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
	sum := sha256.Sum256(rest)
	marked := make([]byte, 0, len(rest)+len(markStart)+2*sha256.Size+1)
	marked = append(marked, head...)
	marked = append(marked, markStart...)
	marked = hex.AppendEncode(marked, sum[:])
	return append(append(marked, '\n'), tail...)
}

// Owned reports whether the content was written by kbnode and is as it wrote it.
func Owned(content []byte) bool {
	rest, mark, ok := unmark(content)
	sum := sha256.Sum256(rest)
	return ok && mark == hex.EncodeToString(sum[:])
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
	return append(bytes.Clone(head), after...), string(line[len(markStart):]), true
}

// shebang splits a script after its first line.
func shebang(content []byte) (head, tail []byte) {
	if !bytes.HasPrefix(content, []byte("#!")) {
		return nil, content
	}
	end := bytes.IndexByte(content, '\n') + 1
	if end == 0 {
		return nil, content
	}
	return content[:end], content[end:]
}
