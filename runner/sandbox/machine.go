package sandbox

import (
	"os"

	"golang.org/x/sys/unix"
)

// A Machine is what a sandbox is built from, for people to read.
type Machine struct {
	User     int      `json:"user"`
	Kernel   string   `json:"kernel"`
	Landlock int      `json:"landlock"` // version, 0: none
	Group    bool     `json:"control_group"`
	Memory   int64    `json:"memory_bytes"` // limit of a sandbox
	Devices  []string `json:"devices"`      // passed through
	Groups   []int    `json:"device_groups"`
}

// Machine describes the machine as [Open] found it.
func (s *Sandbox) Machine() Machine {
	var uts unix.Utsname
	unix.Uname(&uts) // cannot fail with a valid pointer
	devices := gpuDevices()
	return Machine{
		User: os.Getuid(), Kernel: unix.ByteSliceToString(uts.Release[:]), Landlock: landlockABI(), Group: s.group.memory != "", Memory: s.o.Limits.Memory,
		Devices: append([]string{}, devices...), Groups: append([]int{}, deviceGroups(devices)...), // lists in JSON, also without any
	}
}
