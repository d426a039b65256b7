package disk

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/system"
)

// A slot's user writes until the disk is full, and the machine's file system has lost
// no more than that. The next disk is empty.
func TestDiskHoldsWhatItSays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: mounts a file system, which needs root")
	}
	if _, ok := system.Look("mkfs.ext4"); !ok {
		t.Skip("NOT RUN: no mkfs.ext4")
	}
	root, err := os.MkdirTemp("", "kbnode-disk-") // a directory of the test's own has parents that another user cannot pass
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	s := &node.Slot{Name: "gpu0", DiskBytes: 32 << 20}
	at := filepath.Join(root, s.Dir())
	if err := errors.Join(os.Chmod(root, 0o755), os.MkdirAll(at, 0o755), os.MkdirAll(filepath.Join(root, node.DisksDir, "gpu0-1", "content"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Make(t.Context(), s, 60001, 60001, root, system.Run); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mount", "-o", "loop,nodev,nosuid,noatime,discard,noinit_itable", filepath.Join(root, s.DiskImage()), at).CombinedOutput(); err != nil {
			t.Skipf("NOT RUN: this machine mounts no image: %s", out)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		for _, dir := range s.UserDirs() {
			info, err := os.Stat(filepath.Join(root, dir))
			if err != nil {
				t.Fatal(err)
			}
			if uid, gid := system.Owner(info); uid != 60001 || gid != 60001 || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: owner %d:%d, mode %04o, want 60001:60001, 0700", dir, uid, gid, info.Mode().Perm())
			}
		}
		fill := exec.Command("dd", "if=/dev/zero", "bs=1M", "count=64", "of="+filepath.Join(root, s.TempDir(), "fill"))
		fill.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 60001, Gid: 60001}}
		fill.Dir = "/"
		if out, err := fill.CombinedOutput(); err == nil || !strings.Contains(string(out), "No space left") {
			t.Errorf("64 MiB on a disk of 32: %v, want no space left:\n%s", err, out)
		}
		info, err := os.Stat(filepath.Join(root, s.TempDir(), "fill"))
		if err != nil || info.Size() < 16<<20 || info.Size() > s.DiskBytes {
			t.Errorf("the file has %v bytes (%v), want most of %d", info, err, s.DiskBytes)
		}
		if err := unix.Unmount(at, 0); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(filepath.Join(root, node.DisksDir))
	if err != nil || len(left) != 1 {
		t.Errorf("the directory of images has %v (%v), want one image", left, err)
	}
}

func TestSlotWithoutDiskSize(t *testing.T) {
	run := func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("ran a program") }
	if err := Make(t.Context(), &node.Slot{Name: "gpu0"}, 0, 0, t.TempDir(), run); err == nil {
		t.Error("an image of no size was made")
	}
}
