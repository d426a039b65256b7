package device

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

func TestOpenToOthers(t *testing.T) {
	for _, tt := range []struct {
		mode  os.FileMode
		group int
		want  bool
	}{
		{0o666, 0, true},
		{0o660, 0, false}, // no submission is in root's group
		{0o660, 44, true},
		{0o606, 0, true},
		{0o640, 44, false},
		{0o664, 0, false},
		{0o600, 44, false},
		{0o660, -1, false},
	} {
		if got := openToOthers(tt.mode|os.ModeDevice|os.ModeCharDevice, tt.group); got != tt.want {
			t.Errorf("openToOthers(%v, %d) = %v, want %v", tt.mode, tt.group, got, tt.want)
		}
	}
	if got := listed(0o660 | os.ModeDevice | os.ModeCharDevice); got != "crw-rw----" {
		t.Errorf("listed: %s", got)
	}
}

func TestClosed(t *testing.T) {
	gpu := func(node string) []schema.Device { return []schema.Device{{Node: node}} }
	for _, tt := range []struct {
		name, vendor string
		modes        map[string]os.FileMode
		devices      []schema.Device
		want         string // how it begins
	}{
		{"NVIDIA", NVIDIA, map[string]os.FileMode{"nvidiactl": 0o666, "nvidia3": 0o666}, gpu("/dev/nvidia3"), ""},
		{"another number", NVIDIA, map[string]os.FileMode{"nvidiactl": 0o666, "nvidia3": 0o666}, gpu("/dev/nvidia0"), "/dev/nvidia0 is not there: give the job the device"},
		{"number not known", NVIDIA, map[string]os.FileMode{"nvidiactl": 0o666, "nvidia3": 0o600}, gpu(""), ""},
		{"closed to all but root", NVIDIA, map[string]os.FileMode{"nvidiactl": 0o666, "nvidia3": 0o600}, gpu("/dev/nvidia3"), "/dev/nvidia3 cannot be opened by a submission (mode -rw-------, group "},
		{"another one's device", NVIDIA, map[string]os.FileMode{"nvidiactl": 0o666, "nvidia0": 0o600, "nvidia3": 0o666}, gpu("/dev/nvidia3"), ""},
		{"control", NVIDIA, map[string]os.FileMode{"nvidiactl": 0o600, "nvidia3": 0o666}, gpu("/dev/nvidia3"), "/dev/nvidiactl cannot be opened"},
		{"memory", NVIDIA, map[string]os.FileMode{"nvidiactl": 0o666, "nvidia3": 0o666, "nvidia-uvm": 0o600}, gpu("/dev/nvidia3"), "/dev/nvidia-uvm cannot be opened"},
		{"WSL", NVIDIA, map[string]os.FileMode{"dxg": 0o600}, gpu("/dev/nvidia0"), ""},
		{"AMD", AMD, map[string]os.FileMode{"kfd": 0o666, "dri/renderD128": 0o666}, gpu("/dev/dri/renderD128"), ""},
		{"AMD without KFD", AMD, map[string]os.FileMode{"dri/renderD128": 0o666}, gpu("/dev/dri/renderD128"), "/dev/kfd is not there"},
		{"KFD closed", AMD, map[string]os.FileMode{"kfd": 0o600, "dri/renderD128": 0o666}, gpu("/dev/dri/renderD128"), "/dev/kfd cannot be opened"},
		{"render node closed", AMD, map[string]os.FileMode{"kfd": 0o666, "dri/renderD128": 0o600}, gpu("/dev/dri/renderD128"), "/dev/dri/renderD128 cannot be opened"},
		{"TPU", TPU, map[string]os.FileMode{"accel0": 0o666}, gpu("/dev/accel0"), ""},
		{"TPU closed", TPU, map[string]os.FileMode{"accel0": 0o600}, gpu("/dev/accel0"), "/dev/accel0 cannot be opened"},
	} {
		w := &Watch{machine: Machine{Root: devTree(t, tt.modes), OwnUser: true}, report: &schema.DeviceReport{Vendor: tt.vendor}}
		if got := w.Closed(tt.devices); !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// devTree has files for device nodes below a new root's dev.
func devTree(t *testing.T, modes map[string]os.FileMode) string {
	t.Helper()
	files := map[string]string{}
	for name := range modes {
		files["dev/"+name] = ""
	}
	root := tree(t, files)
	for name, mode := range modes {
		if err := os.Chmod(filepath.Join(root, "dev", name), mode); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The group of a node is given to a submission's own user, unless it is root's.
func TestClosedByGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file away")
	}
	root := devTree(t, map[string]os.FileMode{"kfd": 0o660})
	w := &Watch{machine: Machine{Root: root, OwnUser: true}, report: &schema.DeviceReport{Vendor: AMD}}
	const want = "/dev/kfd cannot be opened by a submission (mode -rw-rw----, group 0): give the job the group of the device"
	if got := w.Closed(nil); got != want {
		t.Errorf("group 0: %q, want %q", got, want)
	}
	if err := os.Chown(filepath.Join(root, "dev/kfd"), 0, 44); err != nil {
		t.Fatal(err)
	}
	if got := w.Closed(nil); got != "" {
		t.Errorf("group 44: %q", got)
	}
}

// Without a user of its own a submission may what this process may.
func TestClosedToThisUser(t *testing.T) {
	w := Probe(context.Background(), Machine{Root: amdTree(t)})
	defer w.Close()
	w.machine.Root = devTree(t, map[string]os.FileMode{"kfd": 0o600, "dri/renderD128": 0o600, "dri/renderD136": 0o400})
	asUser(t, w.machine.Root, func() {
		if got := w.Closed(w.Visible()[:1]); got != "" {
			t.Errorf("its own nodes: %q", got)
		}
		if got := w.Closed(w.Visible()); !strings.HasPrefix(got, "/dev/dri/renderD136 cannot be opened by a submission (mode -r--------, group ") {
			t.Errorf("a node that it may only read: %q", got)
		}
	})
}

// asUser calls f as an ordinary user who owns the files below root: this one,
// or as root another one, in a thread that ends.
func asUser(t *testing.T, root string, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) { // of which only the last is open
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	filepath.WalkDir(root, func(path string, _ os.DirEntry, _ error) error { return os.Lchown(path, nobody, nobody) })
	done := make(chan syscall.Errno)
	go func() {
		runtime.LockOSThread() // and never unlocked
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody)
		if errno == 0 {
			f()
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatal(errno)
	}
}
