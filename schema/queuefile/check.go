package queuefile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/near"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A GPUType is what a row of the table of GPU types requires of machines.
type GPUType struct {
	Name      string // "H100_BK"
	Maker     string // of the GPU: "nvidia", "amd", …; "none" where there is none
	Queue     string // where its jobs go
	Slice     string // the part of a GPU that one job gets; "" is whole GPUs
	GPUs      int    // of one job
	CPUs      int    // promised to one job
	MemoryGiB int    // promised to one job
	Isolation string // "node" or "step"
	Image     string // that steps name; "": they start no container
	Off       string // why nothing is sent there now; "" is on
}

// A need is what one GPU's agent must and should have. It comes from
// Kernelbot's guide for vendors, which counts an agent for each GPU.
type need struct{ least, better int }

var (
	needCPUs    = need{8, 16}
	needMemory  = need{16, 32}     // GiB
	needDisk    = need{50, 100}    // GB
	needNetwork = need{100, 1_000} // Mbps
)

// queueLimit is how many queues a cluster has unless Buildkite raises it.
const queueLimit = 50

// Check compares files, as [Decode] returned them, with the table of GPU types
// and with each other. Nil files are passed over.
func Check(files []*File, fleet []GPUType) []*schema.Finding {
	c := checker{fleet: fleet, queues: map[string]bool{}}
	taken := places{}
	var faults []*schema.Finding
	for _, f := range files {
		if f == nil {
			continue
		}
		r := &report{File: f}
		c.file(r)
		r.unique(taken, false)
		faults = append(faults, sorted(r.faults)...)
	}
	return append(faults, c.count()...)
}

type checker struct {
	fleet  []GPUType
	queues map[string]bool // those of patterns, of all files

	lastReport *report // where the last of them stands
	lastQueue  path
}

// count notes what one queue for each agent leads to.
func (c *checker) count() []*schema.Finding {
	if len(c.queues) < 2 {
		return nil
	}
	r := &report{File: c.lastReport.File}
	r.note(c.lastQueue, said(format.Count(len(c.queues), "queue")+" in all"),
		"few: a cluster has %d unless Buildkite raises that, and one for each GPU type would do", queueLimit)
	return r.faults
}

func (c *checker) file(r *report) {
	for i := range r.Contacts {
		if at := r.Contacts[i].Email; strings.HasSuffix(at, "@example.com") || strings.HasSuffix(at, "@example.org") {
			r.note(path{"contacts", i, "email"}, at, "an address that somebody reads")
		}
	}
	c.images(r)
	for i := range r.Nodes {
		for j := range r.Nodes[i].GPUs {
			p := path{"nodes", i, "gpus", j}
			if row, ok := c.lookup(r, p); ok {
				c.group(r, p, row)
			}
		}
		c.indexes(r, i)
		c.network(r, i)
	}
}

// images checks that steps name each reference that has a digest.
func (c *checker) images(r *report) {
	var references []string
	for i := range c.fleet {
		if image := c.fleet[i].Image; image != "" && !slices.Contains(references, image) {
			references = append(references, image)
		}
	}
	for i, image := range r.Images {
		if !slices.Contains(references, image.Reference) {
			r.wrong(path{"images", i, "reference"}, image.Reference, "an image that steps name: %s", near.Perhaps(image.Reference, references))
		}
	}
}

// lookup finds the row of a group's GPU type.
func (c *checker) lookup(r *report, p path) (*GPUType, bool) {
	name := r.group(p).Type
	var names []string
	for i := range c.fleet {
		if c.fleet[i].Name == name {
			return &c.fleet[i], true
		}
		names = append(names, c.fleet[i].Name)
	}
	if name != "" {
		r.wrong(p.to("type"), name, "a GPU type that kbgen knows: %s", near.Perhaps(name, names))
	}
	return nil, false
}

func (f *File) group(p path) *Group { return &f.Nodes[p[1].(int)].GPUs[p[3].(int)] }

func (c *checker) group(r *report, p path, row *GPUType) {
	if row.Off != "" {
		r.note(p.to("type"), row.Name, "one that gets jobs; this one is switched off: %s", row.Off)
	}
	c.maker(r, row)
	c.devices(r, p, row)
	c.share(r, p, row)
	c.queue(r, p, row)
	c.isolation(r, p, row)
}

// maker checks a lender that makes GPUs itself: AMD lends AMD's.
func (c *checker) maker(r *report, row *GPUType) {
	makes := slices.ContainsFunc(c.fleet, func(g GPUType) bool { return g.Maker == r.Vendor })
	if makes && row.Maker != "none" && row.Maker != r.Vendor {
		r.wrong(path{"vendor"}, r.Vendor, "%s, whose GPU %s is, or a vendor that makes none", row.Maker, row.Name)
	}
}

// Names of devices, by who made them.
var (
	nvidiaGPU = text.Pattern(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	nvidiaMIG = text.Pattern(`^MIG-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	amdGPU    = text.Pattern(`^GPU-[0-9a-f]{16}$`)
	zeros     = text.Pattern(`^(GPU|MIG)-0{8}-`)
)

// uuidOf says what the UUIDs of row's devices look like; nil: they have none.
func uuidOf(row *GPUType) (*regexp.Regexp, string) {
	switch {
	case row.Maker == "nvidia" && row.Slice != "":
		return nvidiaMIG(), "MIG-XXXXXXXX-XXXX-XXXX-XXXX-XXXXXXXXXXXX, a slice as nvidia-smi -L prints it"
	case row.Maker == "nvidia":
		return nvidiaGPU(), "GPU-XXXXXXXX-XXXX-XXXX-XXXX-XXXXXXXXXXXX, a whole GPU as nvidia-smi -L prints it"
	case row.Maker == "amd":
		return amdGPU(), "GPU-XXXXXXXXXXXXXXXX, as rocminfo prints it"
	}
	return nil, ""
}

func (c *checker) devices(r *report, p path, row *GPUType) {
	g := r.group(p)
	if per := max(1, g.Agent.GPUs); row.GPUs > 0 && per != row.GPUs {
		r.wrong(p.to("agent", "gpus"), per, "%d: a job for %s gets that many", row.GPUs, row.Name)
	} else if row.GPUs == 0 && g.Agent.GPUs > 1 {
		r.wrong(p.to("agent", "gpus"), g.Agent.GPUs, "nothing: %s has no GPU, and count is the number of agents", row.Name)
	}
	pattern, form := uuidOf(row)
	if row.Slice != "" && row.Maker == "nvidia" && len(g.UUIDs) == 0 {
		r.wrong(p, said("no uuids"), "those of the %s slices: an index names a whole GPU", row.Slice)
	}
	if pattern == nil && len(g.UUIDs) > 0 {
		r.wrong(p.to("uuids"), said("UUIDs"), "count or indexes: the devices of %s have no UUID", row.Name)
		return
	}
	for i, uuid := range g.UUIDs {
		switch {
		case !pattern.MatchString(uuid):
			r.wrong(p.to("uuids", i), uuid, "%s, since the GPU of %s is %s's", form, row.Name, row.Maker)
		case zeros().MatchString(uuid):
			r.note(p.to("uuids", i), uuid, "the UUID of a real device")
		}
	}
}

// whole is how many whole GPUs a job of row gets: what the vendors' guide asks
// for each GPU would be too much for a slice.
func (row *GPUType) whole() int {
	if row.Maker == "none" || row.Slice != "" {
		return 0
	}
	return row.GPUs
}

// share checks what one agent gets: the row's promise to submitters, and what
// the vendors' guide asks for each GPU.
func (c *checker) share(r *report, p path, row *GPUType) {
	a, gpus := r.group(p).Agent, row.whole()
	one := func(what string, got, promise int, n need) {
		least := max(promise, gpus*n.least)
		why := fmt.Sprintf("what %s promises to its jobs", row.Name)
		if promise < least {
			why = "the hardware minimum for each GPU"
		}
		switch {
		case got == 0: // reported as missing
		case got < least:
			r.tooSmall(p.to("agent", what), got, "at least %d, %s", least, why)
		case got < gpus*n.better:
			r.note(p.to("agent", what), got, "%d, which is recommended for each GPU", gpus*n.better)
		}
	}
	one("cpus", a.CPUs, row.CPUs, needCPUs)
	one("memory_gib", a.MemoryGiB, row.MemoryGiB, needMemory)
	one("disk_gb", a.DiskGB, 0, needDisk)
}

func (c *checker) queue(r *report, p path, row *GPUType) {
	g := r.group(p)
	if g.Queue == "" || r.Vendor == "" || g.Queue == row.Queue {
		return
	}
	at := p.to("queue")
	if !strings.Contains(g.Queue, "{") {
		r.wrong(at, g.Queue, "%q: jobs for %s go there and nowhere else", row.Queue, row.Name)
		return
	}
	agents := r.agents(p[1].(int), p[3].(int))
	strange := 0
	for _, a := range agents {
		owner := slices.IndexFunc(c.fleet, func(t GPUType) bool { return t.Queue == a.Queue })
		switch {
		case owner >= 0 && c.fleet[owner].Name != row.Name:
			r.wrong(at, a.Queue, "a queue that does not serve another GPU type, %s", c.fleet[owner].Name)
			return
		case owner < 0:
			strange++
		}
		c.queues[a.Queue] = true
	}
	if strange > 0 {
		r.note(at, agents[0].Queue, "%q: kbgen sends jobs for %s there, and to a queue of the vendor's own only those of builds that name it (GPU_QUEUE)", row.Queue, row.Name)
	}
	c.lastReport, c.lastQueue = r, at
}

func (c *checker) isolation(r *report, p path, row *GPUType) {
	n := &r.Nodes[p[1].(int)]
	at := path{"nodes", p[1], "isolation"}
	switch {
	case n.Isolation == "" || row.Isolation == "":
	case n.Isolation != row.Isolation && row.Isolation == "node":
		r.wrong(at, n.Isolation, "node: a step for %s names no device, so that the machine must (kbnode sets it up)", row.Name)
	case n.Isolation != row.Isolation:
		r.wrong(at, n.Isolation, "step: a step for %s names its devices, and a machine set up by kbnode refuses that", row.Name)
	case row.Isolation == "step":
		agents := 0
		for i := range n.GPUs {
			devices, _ := n.GPUs[i].devices()
			agents += len(devices) / max(1, n.GPUs[i].Agent.GPUs)
		}
		if agents > 1 {
			r.wrong(at, n.Isolation, "node, or one agent on the machine instead of %d: a step for %s takes every GPU there is", agents, row.Name)
		}
	}
}

// indexes finds GPUs that two groups of different types have: types of one maker
// share its indexes, and one without GPUs counts agents.
func (c *checker) indexes(r *report, node int) {
	type place struct {
		gpuType string
		at      path
	}
	taken := map[string]place{}
	for j := range r.Nodes[node].GPUs {
		g := &r.Nodes[node].GPUs[j]
		row := slices.IndexFunc(c.fleet, func(t GPUType) bool { return t.Name == g.Type })
		if row < 0 || c.fleet[row].Maker == "none" || len(g.UUIDs) > 0 {
			continue
		}
		names, _ := g.devices()
		for k, index := range names {
			at := path{"nodes", node, "gpus", j, "count"}
			if len(g.Indexes) > 0 {
				at = path{"nodes", node, "gpus", j, "indexes", k}
			}
			first, twice := taken[c.fleet[row].Maker+" "+index]
			if !twice {
				taken[c.fleet[row].Maker+" "+index] = place{g.Type, at}
			} else if first.gpuType != g.Type { // else it is reported already
				r.wrong(at, said("GPU "+index), "a GPU of its own, it is that of %s on line %d", first.at, r.at(first.at).Line)
				break
			}
		}
	}
}

// network divides the machine's by its GPUs.
func (c *checker) network(r *report, node int) {
	n := &r.Nodes[node]
	gpus := 0
	for i := range n.GPUs {
		if row := slices.IndexFunc(c.fleet, func(g GPUType) bool { return g.Name == n.GPUs[i].Type }); row >= 0 && c.fleet[row].whole() > 0 {
			devices, _ := n.GPUs[i].devices()
			gpus += len(devices)
		}
	}
	at, got := path{"nodes", node, "machine", "network_mbps"}, n.Machine.NetworkMbps
	switch {
	case got == 0 || gpus == 0:
	case got < gpus*needNetwork.least:
		r.tooSmall(at, got, "at least %d: %d for each of %s", gpus*needNetwork.least, needNetwork.least, format.Count(gpus, "GPU"))
	case got < gpus*needNetwork.better:
		r.note(at, got, "%d, which is recommended: %d for each of %s", gpus*needNetwork.better, needNetwork.better, format.Count(gpus, "GPU"))
	}
}
