package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// maxTemp bounds the length of the path of the jobs' directory for temporary
// files: programs put sockets there, whose paths have at most 107 bytes.
const maxTemp = 60

// scratch is where agents and jobs put what must go with the stand-in.
type scratch struct {
	sockets string // short, in the system's temporary directory
	temp    string // TMPDIR of agents and jobs
}

// newScratch makes the directories. Temporary files lie in the state directory,
// unless its path is long or closed to other users: kbrun gives what it runs
// another user id, and that must reach its directory below TMPDIR.
func newScratch(dir string) (s scratch, err error) {
	if s.sockets, err = os.MkdirTemp("", "kbs"); err != nil {
		return s, fmt.Errorf("directory for sockets: %w", err)
	}
	s.temp = filepath.Join(dir, "tmp")
	if len(s.temp) > maxTemp || !passable(dir) {
		s.temp = filepath.Join(s.sockets, "tmp")
		err = os.Chmod(s.sockets, 0o711) // names in it are secret enough: sockets have modes of their own
	}
	if err == nil {
		err = os.RemoveAll(s.temp) // of a stand-in that was killed
	}
	if err == nil {
		err = os.Mkdir(s.temp, 0o711)
	}
	if err != nil {
		return s, fmt.Errorf("directory for temporary files: %w", err)
	}
	return s, nil
}

// passable reports whether every user may pass through a directory and those
// above it.
func passable(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// remove takes away everything that agents and jobs left.
func (s scratch) remove() error {
	return errors.Join(os.RemoveAll(s.temp), os.RemoveAll(s.sockets)) // "" is nothing
}
