package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// makeDirectories makes the directories of a phase.
func makeDirectories(dirs plan.Directories) error {
	for _, d := range []string{dirs.Dir, dirs.Work, dirs.Home, dirs.Temp} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return fmt.Errorf("making the phase's directories: %w", err)
		}
	}
	return nil
}

// writeCases creates the file that the harness reads. Where a submission has no
// user of its own, it may have put something else there; that is removed first.
func writeCases(path, text string) error {
	err := sandbox.RemoveTree(path)
	if err == nil {
		err = writeNew(path, text)
	}
	if err == nil {
		err = os.Chmod(path, 0o644) // whatever the umask
	}
	if err != nil {
		return fmt.Errorf("writing the cases: %w", err)
	}
	return nil
}

// removeFiles removes what writeFiles wrote.
func removeFiles(dir string, files schema.Files) error {
	var faults []error
	for _, f := range files {
		faults = append(faults, os.RemoveAll(filepath.Join(dir, f.Name)))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("removing the sources: %w", err)
	}
	return nil
}

// writeFiles creates the files in dir, which is new and empty.
func writeFiles(dir string, files schema.Files) error {
	for _, f := range files {
		if err := writeNew(filepath.Join(dir, f.Name), f.Text); err != nil {
			return fmt.Errorf("writing the payload's files: %w", err)
		}
	}
	return nil
}

func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// renew replaces dir by an empty directory of the same name: build tools use the
// name as a key of their caches.
func renew(dir string) error {
	if err := sandbox.RemoveTree(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory anew: %w", err)
	}
	return nil
}

// openDirectory makes a directory that the submission's processes may fill, in
// place of whatever the warm-up may have left there.
func openDirectory(dir string) error {
	err := errors.Join(sandbox.RemoveTree(dir), os.Mkdir(dir, 0o700))
	if err == nil {
		err = os.Chmod(dir, 0o777|os.ModeSticky) // its parent is the submission's alone
	}
	if err != nil {
		return fmt.Errorf("making a directory for the profile: %w", err)
	}
	return nil
}

// freeBytes is what a job's user may still write to dir's disk, 0 when the
// system does not tell.
func freeBytes(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	return int64(st.Bavail) * st.Bsize
}

// heldBytes is the disk space of the files below dir, as far as it can be read.
func heldBytes(dir string) (sum int64) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(path, &st) == nil {
			sum += st.Blocks * 512
		}
		return nil // what cannot be read does not count
	})
	return sum
}
