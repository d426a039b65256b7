package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// mountAll puts the sandbox's file system together, all but the program's
// directories.
func (i *initProcess) mountAll() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", i.Root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("mounting the root: %w", err)
	}
	return i.mountList(i.Mounts)
}

// moveIn makes the new file system this process's, with the program's
// directories in it.
func (i *initProcess) moveIn(dirs []mount) error {
	if err := i.mountList(dirs); err != nil {
		return err
	}
	if err := os.Chdir(i.Root); err != nil {
		return fmt.Errorf("entering the root: %w", err)
	}
	// The old root now lies over the new one: take it off.
	if err := errors.Join(unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), os.Chdir("/")); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("closing the root: %w", err)
	}
	return nil
}

func (i *initProcess) mountList(list []mount) error {
	for _, m := range list {
		if err := i.mount(m); err != nil {
			return fmt.Errorf("mounting %s: %w", m.Target, err)
		}
	}
	return nil
}

func (i *initProcess) mount(m mount) error {
	target := filepath.Join(i.Root, m.Target)
	if m.Kind == kindHide {
		return hide(target)
	}
	if err := makeParents(i.Root, m.Target); err != nil {
		return err
	}
	const quiet = unix.MS_NOSUID | unix.MS_NODEV
	switch m.Kind {
	case kindLink:
		if err := os.Symlink(m.Source, target); !errors.Is(err, os.ErrExist) {
			return err
		}
		return nil
	case kindRead:
		return i.bind(m.Source, target, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID)
	case kindWrite:
		return i.bind(m.Source, target, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	case kindDevice:
		return i.bind(m.Source, target, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	}
	if err := makeDir(target); err != nil {
		return err
	}
	switch m.Kind {
	case kindTmpfs:
		return unix.Mount("tmpfs", target, "tmpfs", quiet, m.Data)
	case kindPts:
		// Terminals are a convenience; a kernel may refuse them to a user.
		unix.Mount("devpts", target, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0600")
		return nil
	case kindProc:
		err := unix.Mount("proc", target, "proc", quiet|unix.MS_NOEXEC, "")
		if err == nil {
			return nil
		}
		// Inside a container parts of /proc are covered, and then the kernel gives
		// a user namespace no full /proc.
		i.Missing[schema.GuardProcesses] = fmt.Sprintf("mounting a /proc of its own: %v", err)
		return i.bind("/proc", target, unix.MOUNT_ATTR_NOSUID)
	}
	return fmt.Errorf("unknown kind %q", m.Kind)
}

// bind shows the tree at source, with everything mounted below it, at target.
func (i *initProcess) bind(source, target string, attr uint64) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = makeDir(target)
	} else {
		err = makeFile(target)
	}
	if err != nil {
		return err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("taking %s: %w", source, err)
	}
	defer unix.Close(tree)
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attr}); err != nil {
		return fmt.Errorf("closing %s (Linux 5.12 or newer is needed): %w", source, err)
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// hide covers the target if it exists.
func hide(target string) error {
	info, err := os.Lstat(target)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		// Writable here, for the job's own directory may lie below.
		return unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=64k")
	}
	return unix.Mount("/dev/null", target, "", unix.MS_BIND, "")
}

// makeParents makes the directories above target, which is a path below root,
// and refuses to follow a link out of it.
func makeParents(root, target string) error {
	path := root
	for _, part := range strings.Split(strings.Trim(filepath.Dir(target), "/"), "/") {
		path = filepath.Join(path, part)
		if err := makeDir(path); err != nil {
			return err
		}
	}
	return nil
}

func makeDir(path string) error {
	if os.Mkdir(path, 0o755) == nil {
		return nil
	}
	info, err := os.Lstat(path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no directory", path)
	}
	return err
}

func makeFile(path string) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&os.ModeSymlink == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// loopbackUp switches the sandbox's own loopback device on.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("switching the loopback device on: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("switching the loopback device on: %w", err)
	}
	return nil
}
