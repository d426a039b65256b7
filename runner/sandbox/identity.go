package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// An identity is the user that a submission runs as.
type identity struct {
	Own      bool // not the runner's user
	UID, GID int
	Groups   []int // of the GPU devices
}

// A submission's id is one of these plus the runner's process number, which no
// other runner has at the same time. The first is a range that no distribution
// uses. The second is for root within a user namespace, which usually has 65536
// ids.
// A judge's ids lie beside them.
const (
	uidBase        = 2_046_820_352
	uids           = 1 << 22 // as many as there are process numbers
	uidBaseMapped  = 50_000
	uidsMapped     = 10_000
	judgeUIDs      = uidBase + uids
	judgeUIDMapped = uidBaseMapped - uidsMapped
)

// whoami chooses the identity. As root it is a user and a group that exist for
// this job only, with the groups that open the GPUs.
func whoami(judge bool) identity {
	if !canDrop() {
		return identity{UID: os.Getuid(), GID: os.Getgid()}
	}
	n := ownID(judge)
	return identity{Own: true, UID: n, GID: n, Groups: deviceGroups(gpuDevices())}
}

// OwnUser reports whether a submission runs here as a user of its own and not as
// the runner's.
func OwnUser() bool { return canDrop() }

// FilesShut reports whether every sandbox on this machine keeps programs from
// files of the runner's user that are closed to others: by another user, or
// by Landlock, the least that there is.
func FilesShut() bool { return canDrop() || landlockABI() > 0 }

// ownID returns a user and group id for this job, 0 when this namespace has none.
func ownID(judge bool) int {
	plain, mappedID := uidBase, uidBaseMapped
	if judge {
		plain, mappedID = judgeUIDs, judgeUIDMapped
	}
	for _, n := range []int{plain + os.Getpid()%uids, mappedID + os.Getpid()%uidsMapped} {
		if mapped("/proc/self/uid_map", n) && mapped("/proc/self/gid_map", n) {
			return n
		}
	}
	return 0
}

// mapped reports whether an id exists, from lines of "inside outside count".
func mapped(file string, id int) bool {
	data, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		var first, outside, count int
		if n, _ := fmt.Sscan(line, &first, &outside, &count); n == 3 && first <= id && id < first+count {
			return true
		}
	}
	return false
}

// canDrop reports whether this process may become another user and clean up
// after it.
func canDrop() bool {
	return os.Geteuid() == 0 && ownID(false) != 0 && ownID(true) != 0 && capable(unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_KILL)
}

func capable(caps ...int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	return !slices.ContainsFunc(caps, func(c int) bool { return data[c/32].Effective&(1<<(c%32)) == 0 })
}

// HasGPU reports whether this machine has device nodes of a GPU or TPU.
func HasGPU() bool { return len(gpuDevices()) > 0 }

// gpuDevices lists the device nodes, and directories of them, of any vendor's
// GPUs and TPUs.
func gpuDevices() []string {
	var found []string
	for _, pattern := range []string{
		"/dev/nvidia*", "/dev/gdrdrv", "/dev/dxg", // NVIDIA
		"/dev/kfd", "/dev/dri", // AMD, Intel
		"/dev/accel*", "/dev/vfio", // TPU
	} {
		match, _ := filepath.Glob(pattern) // the patterns are well formed
		found = append(found, match...)
	}
	return found
}

// deviceGroups lists the groups that may use devices which others may not.
func deviceGroups(devices []string) []int {
	var groups []int
	for _, device := range devices {
		filepath.Walk(device, func(path string, info os.FileInfo, err error) error {
			if err != nil || info.Mode()&os.ModeDevice == 0 {
				return nil
			}
			st, ok := info.Sys().(*syscall.Stat_t)
			if mode := info.Mode(); ok && mode&0o060 == 0o060 && mode&0o006 != 0o006 && st.Gid != 0 {
				groups = append(groups, int(st.Gid))
			}
			return nil
		})
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}
