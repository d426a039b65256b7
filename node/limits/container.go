package limits

import (
	"strconv"

	"github.com/gpu-mode/kbgen/node"
)

// A Container is what docker's API has of the slot's limits, in HostConfig.
type Container struct {
	CgroupParent   string
	CpusetCpus     string
	CpusetMems     string `json:",omitempty"`
	Memory         int64
	MemorySwap     int64
	PidsLimit      int64
	DeviceRequests []DeviceRequest `json:",omitempty"`
	Devices        []Device        `json:",omitempty"`
	GroupAdd       []string        `json:",omitempty"`
}

// A DeviceRequest asks for devices by their CDI names.
type DeviceRequest struct {
	Driver    string
	DeviceIDs []string
}

// A Device is a device node.
type Device struct{ PathOnHost, PathInContainer, CgroupPermissions string }

// NewContainer returns the limits of a job's container. Devices without a CDI name
// are given as nodes.
func NewContainer(s *node.Slot) Container {
	c := Container{
		CgroupParent: s.Slice(), CpusetCpus: s.CPUs, CpusetMems: s.MemoryNodes,
		Memory: s.MemoryBytes, MemorySwap: s.MemoryBytes, PidsLimit: int64(s.Pids),
	}
	var names []string
	unnamed := *s
	unnamed.Devices = nil
	for _, d := range s.Devices {
		if d.CDI != "" {
			names = append(names, d.CDI)
		} else {
			unnamed.Devices = append(unnamed.Devices, d)
		}
	}
	for _, path := range deviceNodes(&unnamed) {
		c.Devices = append(c.Devices, Device{PathOnHost: path, PathInContainer: path, CgroupPermissions: "rw"})
	}
	if len(names) > 0 {
		c.DeviceRequests = []DeviceRequest{{Driver: "cdi", DeviceIDs: names}}
	}
	for _, id := range s.Groups {
		c.GroupAdd = append(c.GroupAdd, strconv.Itoa(id))
	}
	return c
}
