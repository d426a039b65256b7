package device

import (
	"time"
)

// A Machine says where to probe for devices.
type Machine struct {
	Root    string        // of dev, proc and sys; "" means "/"
	Probe   []string      // a program whose work is [Detach] of [Serve]; none: NVML is not asked
	SMI     string        // nvidia-smi, "" when there is none
	Environ []string      // of those two; its variables also hide devices, see [Visible]
	Limit   time.Duration // of one question to a driver

	// Settle is how long a driver may go on listing a process that was killed;
	// 0 means 2 s.
	Settle time.Duration

	// Vendor is whose devices are probed first, that of [Requirements]; "" means
	// NVIDIA. None: nobody will use any.
	Vendor string

	// OwnUser: a submission runs as a user of its own and not as this process's.
	// It has the groups of the device nodes, but not root's.
	OwnUser bool

	// OneShot keeps no probing process, so nothing is sampled: for a caller that
	// is process 1, whose orphans become its children.
	OneShot bool
}

// nvidiaKernel reports whether the machine has the driver.
func (m Machine) nvidiaKernel() bool {
	return m.there("/dev/nvidiactl") || m.there("/proc/driver/nvidia/version")
}
