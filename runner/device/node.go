package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// Closed names the first node of these devices that a submission could not
// open for reading and writing, and says why in one line; "" when there is
// none. It reads modes and groups and opens nothing: opening a device may wake
// it.
func (w *Watch) Closed(devices []schema.Device) string {
	for _, node := range w.machine.nodes(w.report.Vendor, devices) {
		if text := w.machine.closed(node); text != "" {
			return text
		}
	}
	return ""
}

// nodes lists what a program opens to use these devices. A device whose node
// is not known is left out.
func (m Machine) nodes(vendor string, devices []schema.Device) []string {
	var all []string
	switch vendor {
	case NVIDIA:
		// NVIDIA's kernel driver cannot be used without this one. A driver that
		// answers without it is another one, as on WSL, and has other nodes.
		if !m.there("/dev/nvidiactl") {
			return nil
		}
		all = append(all, "/dev/nvidiactl")
		if m.there("/dev/nvidia-uvm") { // made when CUDA is first used
			all = append(all, "/dev/nvidia-uvm")
		}
	case AMD:
		all = append(all, "/dev/kfd")
	}
	for _, d := range devices {
		if d.Node != "" {
			all = append(all, d.Node)
		}
	}
	return all
}

func (m Machine) there(node string) bool {
	_, err := os.Stat(filepath.Join(m.Root, node))
	return err == nil
}

func (m Machine) closed(node string) string {
	path := filepath.Join(m.Root, node)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return node + " is not there: give the job the device"
	case err != nil:
		return fmt.Sprintf("%s cannot be opened by a submission: %v", node, reason(err))
	case m.opens(path, info):
		return ""
	}
	return fmt.Sprintf("%s cannot be opened by a submission (mode %s, group %d): give the job the group of the device", node, listed(info.Mode()), groupOf(info))
}

// opens reports whether a submission may read and write a file. One with a user
// of its own has the groups that package sandbox gives it.
func (m Machine) opens(path string, info fs.FileInfo) bool {
	if !m.OwnUser {
		return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS) == nil
	}
	return openToOthers(info.Mode(), groupOf(info))
}

// openToOthers is the rule for a user who does not own the file and is in every
// group that may use it, but never in root's.
func openToOthers(mode fs.FileMode, group int) bool {
	return mode&0o006 == 0o006 || mode&0o060 == 0o060 && group > 0
}

// groupOf is a file's group, -1 when it is not known.
func groupOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Gid)
	}
	return -1
}

// listed writes a mode as ls does: Go writes "Dcrw-rw----".
func listed(mode fs.FileMode) string { return strings.TrimPrefix(mode.String(), "D") }

// reason is err without its path, which in tests is not the machine's.
func reason(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
