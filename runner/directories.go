package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

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

// renew puts an empty directory in the place of dir. The name stays: build
// tools key their caches on it.
func renew(dir string) error {
	if err := removeTree(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory anew: %w", err)
	}
	return nil
}

// removeTree removes dir even when a submission took permissions away.
func removeTree(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(path, 0o700) // before its entries are read; what stays closed fails below
		}
		return nil
	})
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing what the submission left: %w", err)
	}
	return nil
}

// ownDir makes a directory that the submission's processes may fill, in place of
// whatever the warm-up may have left there.
func (ph *phase) ownDir(dir string) error {
	err := errors.Join(removeTree(dir), os.Mkdir(dir, 0o700))
	if err == nil {
		err = os.Chmod(dir, 0o777|os.ModeSticky) // its parent is the submission's alone
	}
	if err != nil {
		return fmt.Errorf("making a directory for the profile: %w", err)
	}
	return nil
}

// enoughDisk is how much a machine must have free when a phase begins, in
// bytes; with less it is the machine's doing that there is no room.
const enoughDisk = 256 << 20

// diskFull is how a phase ends that has no room for the runner's files: it is
// the submission's doing when its own take most of what was free.
func (ph *phase) diskFull(err error) error {
	var held int64
	for _, dir := range []string{ph.work, ph.home, ph.tmp} {
		held += heldBytes(dir)
	}
	if ph.free < enoughDisk || held < ph.free/4*3 {
		return err
	}
	return endf(schema.OutcomeOutOfDisk, "the submission filled the disk: its files take %d of the %d MiB that were free", held>>20, ph.free>>20)
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

// heldBytes is the room that the files below dir take, as far as it can be read.
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
