package queuefile

import (
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
)

// What a node keeps for itself: the agents, dockerd, the page cache, the
// system, and two runner images of 20 GB while one replaces the other.
const (
	HostCPUs   = 2
	HostDiskGB = 50
)

// HostMemoryGiB is what a machine keeps of its memory: a thirty-second, at
// least 4 GiB.
func HostMemoryGiB(machine int) int { return max(4, machine/32) }

// consistent finds what contradicts itself within the file.
func (r *report) consistent() {
	r.unique(places{}, true)
	for i := range r.Nodes {
		for j := range r.Nodes[i].GPUs {
			r.checkDevices(path{"nodes", i, "gpus", j}, &r.Nodes[i].GPUs[j])
		}
		r.checkSums(path{"nodes", i}, &r.Nodes[i])
	}
}

var queuePattern = text.Pattern(`^[A-Za-z0-9_-]{1,80}$`)

// checkDevices checks that a group's GPUs can be dealt out to its agents.
func (r *report) checkDevices(p path, g *Group) {
	devices, _ := g.devices()
	if per := g.Agent.GPUs; per > 1 && len(devices)%per != 0 {
		r.wrong(p.to("agent", "gpus"), per, "a divisor of %d, the number of GPUs here", len(devices))
	}
	if g.Queue == "" || g.Type == "" {
		return
	}
	for _, a := range r.agents(p[1].(int), p[3].(int)) {
		if !queuePattern().MatchString(a.Queue) {
			r.wrong(p.to("queue"), a.Queue, "letters, digits, - and _ and at most 80 of them, once filled in")
			r.bad[p.to("queue").String()] = true
			return
		}
	}
}

// checkSums adds up what a node's agents get.
func (r *report) checkSums(p path, n *Node) {
	var agents, cpus, memory, disk int
	for i := range n.GPUs {
		g := &n.GPUs[i]
		devices, _ := g.devices()
		count := len(devices) / max(1, g.Agent.GPUs)
		agents += count
		cpus += count * g.Agent.CPUs
		memory += count * g.Agent.MemoryGiB
		disk += count * g.Agent.DiskGB
	}
	if agents == 0 {
		return
	}
	sum := func(what string, has, given, host int) {
		if has > 0 && given > 0 && has < given+host {
			r.tooSmall(p.to("machine", what), has, "at least %d: %d for %s and %d for the machine itself", given+host, given, format.Count(agents, "agent"), host)
		}
	}
	sum("cpus", n.Machine.CPUs, cpus, HostCPUs)
	sum("memory_gib", n.Machine.MemoryGiB, memory, HostMemoryGiB(n.Machine.MemoryGiB))
	sum("disk_gb", n.Machine.DiskGB, disk, HostDiskGB)
}
