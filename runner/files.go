package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
