package apply

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/gpu-mode/kbgen/node/resource"
)

// make makes or changes one thing.
func (w *work) make(ctx context.Context, a *resource.Action) error {
	name := w.m.path(a.Name)
	switch want := a.Want().(type) {
	case resource.User:
		return w.user(ctx, want)
	case resource.Dir:
		uid, gid, err := w.ids(want.Owner, want.Group)
		if err != nil {
			return err
		}
		if err := w.ledger.note(record{Kind: a.Kind, Name: a.Name}); err != nil {
			return err
		}
		return w.m.setDir(name, want.Mode, uid, gid)
	case resource.Copy:
		return w.copy(want)
	case resource.File:
		return w.file(want)
	}
	return fmt.Errorf("got an action of kind %q, which nobody knows", a.Kind)
}

// ids are the numbers of a user and a group.
func (w *work) ids(owner, group string) (uid, gid int, err error) {
	if !w.m.Owners {
		return -1, -1, nil
	}
	u, ok := w.accounts.users[owner]
	if !ok {
		if u, err = strconv.Atoi(owner); err != nil {
			return 0, 0, fmt.Errorf("got no user %q", owner)
		}
	}
	g, ok := w.accounts.groups[group]
	if !ok {
		if g, err = strconv.Atoi(group); err != nil {
			return 0, 0, fmt.Errorf("got no group %q", group)
		}
	}
	return u, g, nil
}

func (w *work) user(ctx context.Context, u resource.User) error {
	_, exists := w.accounts.users[u.Name]
	err := w.ledger.note(record{Kind: resource.KindUser, Name: u.Name, Prior: &prior{Absent: !exists}})
	if err != nil || exists {
		return err
	}
	if err := w.m.Users.Add(ctx, u); err != nil {
		return err
	}
	w.accounts, err = w.m.accounts()
	return err
}

func (w *work) file(f resource.File) error {
	uid, gid, err := w.ids(f.Owner, f.Group)
	if err != nil {
		return err
	}
	content := f.Bytes()
	n := resource.Node{Type: "file", SHA256: resource.Hash(content)}
	if err := w.ledger.note(record{Kind: resource.KindFile, Name: f.Path, Wrote: n.Fingerprint()}); err != nil {
		return err
	}
	return w.m.install(w.m.path(f.Path), bytes.NewReader(content), n.SHA256, f.Mode, uid, gid)
}

func (w *work) copy(c resource.Copy) error {
	n := resource.Node{Type: "file", SHA256: c.SHA256}
	if err := w.ledger.note(record{Kind: resource.KindCopy, Name: c.Path, Wrote: n.Fingerprint()}); err != nil {
		return err
	}
	return w.m.installFrom(c.From, w.m.path(c.Path), c.SHA256, c.Mode, 0, 0)
}

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

// install puts content at a path, whole or not at all, with its mode and owner from
// the first moment on. want is its SHA-256. renameio would do the same, with a
// temporary file of another name each time.
func (m *Machine) install(name string, content io.Reader, want string, mode fs.FileMode, uid, gid int) error {
	temp := temporary(name)
	sum, err := m.write(temp, content, func(f *os.File) error { return m.finish(f, mode, uid, gid) })
	if err != nil {
		return err
	}
	if sum != want {
		os.Remove(temp)
		return fmt.Errorf("got SHA-256 %s, want %s", sum, want)
	}
	return m.rename(temp, name)
}

// installFrom is install for the content of a file.
func (m *Machine) installFrom(from, name, want string, mode fs.FileMode, uid, gid int) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := m.install(name, in, want, mode, uid, gid); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return nil
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
	if err := f.Chmod(mode); err != nil { // after the owner: a change of that takes bits away
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

// write writes content to a new file, and returns its hash. done sees the file before
// it is closed.
func (m *Machine) write(name string, content io.Reader, done func(*os.File) error) (sum string, err error) {
	f, err := create(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, hash), content, 1<<4); err != nil && err != io.EOF {
		return "", err
	}
	if err := m.step(name + ", in the middle of its content"); err != nil {
		return "", err
	}
	if _, err := io.Copy(io.MultiWriter(f, hash), content); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), done(f)
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

// remove takes away a file or a link, and what a crash left of its next
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
