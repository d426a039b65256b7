package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveTree removes dir even when a submission took permissions away.
func RemoveTree(dir string) error {
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
