// Package limits says how a slot's memory, processes, cores and devices are limited,
// for a job and for the slot's slice, in which job, agent and hooks run. Plans take
// the numbers from it, units and containers are made with them, and gate, doctor and
// trial compare them with what systemd and the kernel enforce.
//
// Source: cgroup v2, files memory.max, memory.swap.max, pids.max,
// cpuset.cpus.effective; systemd.resource-control(5).
package limits

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/cpulist"
	"github.com/gpu-mode/kbgen/templates"
)

// What agent, hooks and the docker CLI need beside a job.
const (
	agentBytes = 256 << 20
	agentPids  = 256
)

// Set gives a job of the slot memory, a disk and a number of processes and threads,
// and the slice what agent and hooks need besides.
func Set(s *node.Slot, memoryGiB, diskGB, pids int) {
	s.DiskBytes = int64(diskGB) * 1e9
	s.MemoryBytes = int64(memoryGiB) << 30
	s.SliceBytes = s.MemoryBytes + agentBytes
	s.Pids, s.SlicePids = pids, pids+agentPids
}

// Nodes returns the device nodes that a job may open, each once.
func Nodes(s *node.Slot) []string {
	var nodes []string
	for _, d := range s.Devices {
		for _, path := range d.Nodes {
			if !slices.Contains(nodes, path) {
				nodes = append(nodes, path)
			}
		}
	}
	return nodes
}

// Unit returns the unit of the slot's slice.
func Unit(s *node.Slot) (string, error) {
	return (&templates.NodeSlice{
		Slot: s.Name, GPUType: s.GPUType, CPUs: s.CPUs, MemoryNodes: s.MemoryNodes, MemoryBytes: s.SliceBytes, Pids: s.SlicePids, Nodes: Nodes(s),
	}).Unit()
}

// cpuset is a list of processors.
const cpuset = "cpuset.cpus.effective"

// A Limit is one bound of a control group.
type Limit struct {
	File     string // of the control group
	Property string // of the slice's unit
	Want     string // in the file
	Optional bool   // some kernels have no such file, and nothing to limit
}

// Slice returns the limits of the slot's slice.
func Slice(s *node.Slot) []Limit {
	return append(group(s.SliceBytes, s.SlicePids, s.CPUs), Limit{"memory.swap.max", "MemorySwapMax", "0", true})
}

// Job returns the limits of the control group of a job's container.
func Job(s *node.Slot) []Limit { return group(s.MemoryBytes, s.Pids, s.CPUs) }

func group(bytes int64, pids int, cpus string) []Limit {
	return []Limit{
		{File: "memory.max", Property: "MemoryMax", Want: strconv.FormatInt(bytes, 10)},
		{File: "pids.max", Property: "TasksMax", Want: strconv.Itoa(pids)},
		{File: cpuset, Property: "AllowedCPUs", Want: cpus},
	}
}

// page is the size that the kernel rounds memory limits to.
const page = 64 << 10 // the largest there is

// Check says whether the slot's slice is limited at least as its config says, read from
// the kernel below fsys, which is "/". A slice that is misspelt, or was not loaded, has
// no limits, and nothing else would say so.
func Check(fsys fs.FS, s *node.Slot) error {
	for _, limit := range Slice(s) {
		raw, err := fs.ReadFile(fsys, strings.TrimPrefix(s.CgroupDir(), "/")+"/"+limit.File)
		if err != nil && limit.Optional {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the slice's limits: %w", err)
		}
		if got := strings.TrimSpace(string(raw)); !limit.holds(got) {
			if limit.File == cpuset {
				got = strconv.Quote(got)
			}
			return fmt.Errorf("%s: %s: got %s, want %s: kbnode apply, then kbnode doctor --slot %s", s.Slice(), limit.File, got, limit.Want, s.Name)
		}
	}
	return nil
}

// holds reports whether a value in the limit's file allows no more than it should.
func (l *Limit) holds(got string) bool {
	if l.File == cpuset {
		have, err1 := cpulist.Parse(got)
		want, err2 := cpulist.Parse(l.Want)
		return err1 == nil && err2 == nil && len(have) > 0 && !slices.ContainsFunc(have, func(n int) bool { return !slices.Contains(want, n) })
	}
	have, err1 := strconv.ParseInt(got, 10, 64)
	want, err2 := strconv.ParseInt(l.Want, 10, 64)
	if l.File == "memory.max" {
		want += page
	}
	return err1 == nil && err2 == nil && have <= want
}

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
	for _, path := range Nodes(&unnamed) {
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
