// Package disk makes the file system that bounds what the jobs of a slot write. It is
// an image of a fixed size that takes room only for what it holds. Systemd mounts it
// on the slot's directory while the slot is in use. Each mount begins with a new image,
// so that nothing in it is worth keeping.
package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gpu-mode/kbgen/node"
)

// Make makes the image of a slot, with the directories of the slot's user in it, in
// place of an older one. A mounted older image stays until it is unmounted. Paths lie
// below root; run runs a program.
func Make(ctx context.Context, s *node.Slot, uid, gid int, root string, run func(ctx context.Context, name string, args ...string) ([]byte, error)) (err error) {
	if s.DiskBytes <= 0 {
		return fmt.Errorf("slot %s: disk: got a size of %d bytes, want more than 0: run kbnode apply FILE", s.Name, s.DiskBytes)
	}
	left, err := filepath.Glob(filepath.Join(root, node.DisksDir, s.Name+"-*")) // by a power cut
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Join(root, node.DisksDir), s.Name+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	content := filepath.Join(work, "content")
	if err := os.Mkdir(content, 0o755); err != nil {
		return err
	}
	for _, dir := range s.UserDirs() {
		dir = filepath.Join(content, filepath.Base(dir))
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, gid)); err != nil {
			return err
		}
	}
	image := filepath.Join(work, "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(image, s.DiskBytes); err != nil {
		return err
	}
	// No journal and no reserve: nothing in it outlives the slot's agent. An inode for
	// each 64 KiB, because each takes room.
	if _, err := run(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-i", strconv.Itoa(64<<10), "-O", "^has_journal",
		"-E", "nodiscard,lazy_itable_init=1,root_owner=0:0", "-d", content, image); err != nil {
		return err
	}
	return os.Rename(image, filepath.Join(root, s.DiskImage()))
}
