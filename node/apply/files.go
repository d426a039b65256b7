package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gpu-mode/kbgen/node/resource"
)

// temporary is where the next content of a path is written, always the same, so
// that whoever comes after a crash knows what to clear away.
func temporary(name string) string {
	dir, base := filepath.Split(name)
	return dir + "." + base + ".kbnode-new"
}

func typeOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "dir"
	case mode&fs.ModeSymlink != 0:
		return "link"
	}
	return "other"
}

func permissions(mode fs.FileMode) fs.FileMode {
	return mode & (fs.ModePerm | fs.ModeSticky | fs.ModeSetgid | fs.ModeSetuid)
}

func ids(info fs.FileInfo) (uid, gid int) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), int(s.Gid)
	}
	return -1, -1
}

// writeFile puts content at a path, whole or not at all, with its mode and owner
// from the first moment on. renameio would do the same, with a temporary file of
// another name each time.
func (m *Machine) writeFile(name string, content []byte, mode fs.FileMode, uid, gid int) error {
	temp := temporary(name)
	f, err := create(temp)
	if err != nil {
		return err
	}
	defer f.Close()
	half := len(content) / 2
	if _, err := f.Write(content[:half]); err != nil {
		return err
	}
	if err := m.step(name + ", in the middle of its content"); err != nil {
		return err
	}
	if _, err := f.Write(content[half:]); err != nil {
		return err
	}
	if err := m.finish(f, mode, uid, gid); err != nil {
		return err
	}
	return m.rename(temp, name)
}

// create makes a file that is nobody else's, in place of one that was left.
func create(name string) (*os.File, error) {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// finish gives a file or directory its owner and mode.
func (m *Machine) finish(f *os.File, mode fs.FileMode, uid, gid int) error {
	if m.Owners {
		if err := f.Chown(uid, gid); err != nil {
			return err
		}
	}
	if err := f.Chmod(resource.Mode(mode)); err != nil { // after the owner: a change of that takes bits away
		return err
	}
	return m.sync(f)
}

func (m *Machine) rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return m.syncDir(filepath.Dir(to))
}

// copyTo copies a file to a new one, and returns its hash. done sees the copy
// before it is closed.
func (m *Machine) copyTo(to, from string, done func(*os.File) error) (string, error) {
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer in.Close()
	f, err := create(to)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, sum), in, 1<<10); err != nil && err != io.EOF {
		return "", err
	}
	if err := m.step(to + ", in the middle of a copy"); err != nil {
		return "", err
	}
	if _, err := io.Copy(io.MultiWriter(f, sum), in); err != nil {
		return "", err
	}
	if err := done(f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), m.sync(f)
}

// setDir makes a directory what is asked. It follows no link: what it lies in may
// be a slot's own.
func (m *Machine) setDir(name string, mode fs.FileMode, uid, gid int) error {
	if err := os.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := m.step(name + ", made, without its mode"); err != nil {
		return err
	}
	d, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := m.finish(d, mode, uid, gid); err != nil {
		return err
	}
	return m.syncDir(filepath.Dir(name))
}

func (m *Machine) setLink(name, target string) error {
	temp := temporary(name)
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	if err := m.step(name + ", before it gets its name"); err != nil {
		return err
	}
	return m.rename(temp, name)
}

// remove takes away a file, a link or a clone, and what a crash left of its next
// content.
func (m *Machine) remove(name string) error {
	for _, gone := range []string{temporary(name), name} {
		if err := os.RemoveAll(gone); err != nil {
			return err
		}
	}
	err := m.syncDir(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeDir takes away a directory that is empty. kept says that it is not.
func (m *Machine) removeDir(name string) (kept bool, err error) {
	err = os.Remove(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EEXIST):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("removing a directory: %w", err)
	}
	return false, m.syncDir(filepath.Dir(name))
}
