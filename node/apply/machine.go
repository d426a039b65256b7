// Package apply makes a machine what a resource.Set says, and undoes it.
//
// Before the first change of a thing it writes into a ledger what was there, and
// waits until the disk has it. Each change is one step that is done or not done,
// whenever the machine fails: apply again goes on from there, undo goes back.
//
// It knows nothing of GPUs, queues and agents; it knows units, and that some of
// them end a job before they stop.
package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Machine is where things are done.
type Machine struct {
	Root    string // "/"; another directory, and all paths lie below it
	Systemd Systemd
	Users   Users
	// Owners says that owners of files count. Only root can give a file away.
	Owners bool

	// Self is the program that runs, as a path below Root. Undo needs it to the end.
	Self string

	// NoSync leaves out the waiting for the disk, and Step is called before and
	// after each change and in the middle of each write; an error ends it there.
	// Both are for tests.
	NoSync bool
	Step   func(what string) error
}

// Systemd is a system's manager.
type Systemd interface {
	// States says how units are, by name. A unit that it does not know is the zero.
	States(ctx context.Context, units []string) (map[string]resource.UnitState, error)
	// Reload makes it read its files again.
	Reload(ctx context.Context) error
	// Do does one of package resource's verbs for units. Enable and Disable change what
	// starts at boot, and do not reload. The others return when all of the units are
	// what is asked. Stop asks a unit that stops already no second time.
	Do(ctx context.Context, verb string, units []string) error
	// Verify says what is wrong with the unit files in a directory: their names and
	// lines.
	Verify(ctx context.Context, dir string, names []string) ([]string, error)
}

// Users changes a system's users. Who is there stands in /etc/passwd and
// /etc/group.
type Users interface {
	Add(ctx context.Context, u resource.User) error
	// Remove removes a user and its group. A missing user is not an error.
	Remove(ctx context.Context, name string) error
}

// path is where something lies really.
func (m *Machine) path(name string) string { return filepath.Join(m.Root, name) }

func (m *Machine) step(what string) error {
	if m.Step == nil {
		return nil
	}
	return m.Step(what)
}

func (m *Machine) sync(f *os.File) error {
	if m.NoSync {
		return nil
	}
	return f.Sync()
}

// syncDir waits until the disk knows the names in a directory.
func (m *Machine) syncDir(path string) error {
	if m.NoSync {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

const lockPath = "/run/kbnode.lock"

// Lock keeps others from changing the machine until unlock is called. Nothing is
// left of it then. A process that dies gives it up.
func (m *Machine) Lock(what string) (unlock func(), err error) {
	name := m.path(lockPath)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			defer f.Close()
			if !errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, fmt.Errorf("%s: %w", lockPath, err)
			}
			holder, _ := io.ReadAll(io.LimitReader(f, 200))
			return nil, fmt.Errorf("%s: held by %s: wait until it has ended", lockPath, text.Line(string(holder), 100))
		}
		// Whoever had it before may have removed the file meanwhile.
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if now, err := os.Stat(name); err != nil || !os.SameFile(mine, now) {
			f.Close()
			continue
		}
		err = f.Truncate(0)
		if err == nil {
			_, err = fmt.Fprintf(f, "kbnode %s, process %d", what, os.Getpid())
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		return func() {
			os.Remove(name)
			f.Close()
		}, nil
	}
}
