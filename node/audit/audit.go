// Package audit keeps a record of each container that ran on a slot, and of each job of
// a slot without containers, for the questions that come after an incident: which job,
// of which build, ran when, from which image. Journald may forget; these files stay
// until they are too large.
package audit

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gpu-mode/kbgen/node"
)

// A Record is a line of a slot's file.
type Record struct {
	Slot     string    `json:"slot"`
	Job      string    `json:"job"`      // Buildkite's ID
	Pipeline string    `json:"pipeline"` // its slug
	Build    string    `json:"build"`    // its number
	Step     string    `json:"step"`     // its key
	Image    string    `json:"image"`    // the engine's ID of it; empty without a container
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`
	Status   int       `json:"status"` // the exit status of the container or command; -1: not known
}

// maxFile bounds a file, in bytes. The one before it is kept as well.
const maxFile = 16 << 20

// Append adds a record to the slot's file, in AuditDir below root.
func Append(root string, r Record) (err error) {
	name := filepath.Join(root, node.AuditDir, r.Slot+".log")
	if info, err := os.Stat(name); err == nil && info.Size() > maxFile {
		if err := os.Rename(name, name+".1"); err != nil {
			return err
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	return f.Sync()
}
