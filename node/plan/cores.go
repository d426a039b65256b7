package plan

import (
	"maps"
	"slices"

	"github.com/gpu-mode/kbgen/node/cpulist"
	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

// A core is a physical one: its logical processors are given away together, for
// what runs on one of them slows the other down.
type core struct {
	id, node int
	cpus     []int
}

// A pool is the cores that are still free, by NUMA node, in their order.
type pool map[int][]core

// cores gives each slot whole physical cores.
//
// CPUs of a queue file and of a row are logical processors: that is what nproc
// counts in a job, what docker's --cpus means, and what the isolation pipeline
// compares. A slot gets as many, and one more where they end in the middle of a
// core. The host keeps [queuefile.HostCPUs] of them, again in whole cores, so that
// a file that leaves that many passes here as well.
//
// A slot's cores are of the NUMA node of its GPUs. Those without GPUs, or with GPUs
// of unknown nodes, take what is left.
func (m *maker) cores() {
	free, online := newPool(m.Facts.CPUs)
	host := queuefile.HostCPUs
	if m.AllowSmall {
		host = 1
	}
	wanted := 0
	for _, s := range m.slots {
		wanted += s.share.CPUs
	}
	if wanted+host > online {
		m.wrong("CPUs: got %d, want %d: %d for the slots and %d for the machine itself", online, wanted+host, wanted, host)
		return
	}
	m.keep(free, host)
	var later []*slot
	for _, s := range m.slots {
		if s.numa >= 0 && free.cpus(s.numa) >= s.share.CPUs {
			m.give(free, s)
		} else {
			later = append(later, s) // else it would take the cores beside another's GPU
		}
	}
	for _, s := range later {
		m.give(free, s)
	}
}

// give takes a slot's cores out of those that are free.
func (m *maker) give(free pool, s *slot) {
	cpus, nodes := free.take(s)
	if len(cpus) < s.share.CPUs {
		m.wrong("%s: got %d CPUs in whole cores, want %d: the others are taken", s.Name, len(cpus), s.share.CPUs)
		return
	}
	if s.numa >= 0 && !slices.Equal(nodes, []int{s.numa}) {
		m.note("%s: its GPU is at NUMA node %d, whose cores are taken; it gets some of node %s", s.Name, s.numa, cpulist.Format(nodes))
	}
	if len(cpus) > s.share.CPUs {
		m.note("%s: %d CPUs instead of %d: cores are not divided", s.Name, len(cpus), s.share.CPUs)
	}
	s.CPUs = cpulist.Format(cpus)
	if len(nodes) == 1 && len(m.Facts.NUMANodes) > 1 {
		s.MemoryNodes = cpulist.Format(nodes)
	}
}

func newPool(cpus []facts.CPU) (free pool, online int) {
	byCore := map[int]*core{}
	for _, c := range cpus {
		if !c.Online {
			continue
		}
		online++
		if byCore[c.Core] == nil {
			byCore[c.Core] = &core{id: c.Core, node: c.Node}
		}
		byCore[c.Core].cpus = append(byCore[c.Core].cpus, c.ID)
	}
	free = pool{}
	for _, id := range slices.Sorted(maps.Keys(byCore)) {
		c := *byCore[id]
		free[c.node] = append(free[c.node], c)
	}
	return free, online
}

func (p pool) cpus(node int) int {
	n := 0
	for _, c := range p[node] {
		n += len(c.cpus)
	}
	return n
}

// keep takes the host's cores out: the first of the node that has most to spare.
func (m *maker) keep(free pool, host int) {
	spare := map[int]int{}
	for node := range free {
		spare[node] = free.cpus(node)
	}
	for _, s := range m.slots {
		if s.numa >= 0 {
			spare[s.numa] -= s.share.CPUs
		}
	}
	for host > 0 {
		best := -1
		for _, node := range slices.Sorted(maps.Keys(free)) {
			if len(free[node]) > 0 && (best < 0 || spare[node] > spare[best]) {
				best = node
			}
		}
		if best < 0 {
			return
		}
		n := len(free[best][0].cpus)
		free[best] = free[best][1:]
		spare[best] -= n
		host -= n
	}
}

// take gives a slot its cores: of its node, of the first that has enough for one
// without, of whatever is left where no node has.
func (p pool) take(s *slot) (cpus, nodes []int) {
	order := slices.Sorted(maps.Keys(p))
	first := s.numa
	if first < 0 || p.cpus(first) < s.share.CPUs {
		first = -1
		for _, node := range order {
			if p.cpus(node) >= s.share.CPUs && (first < 0 || node == s.numa) {
				first = node
			}
		}
	}
	if first < 0 { // no node has enough: some of the GPU's own come first
		first = s.numa
	}
	if i := slices.Index(order, first); i > 0 {
		order = slices.Insert(slices.Delete(order, i, i+1), 0, first)
	}
	for _, node := range order {
		for len(cpus) < s.share.CPUs && len(p[node]) > 0 {
			cpus = append(cpus, p[node][0].cpus...)
			p[node] = p[node][1:]
			if !slices.Contains(nodes, node) {
				nodes = append(nodes, node)
			}
		}
	}
	slices.Sort(nodes)
	return cpus, nodes
}

// smallHostBytes is what a machine of a test keeps.
const smallHostBytes = 512 << 20

// memory refuses slots that together would leave the machine too little, and binds
// no slot to a NUMA node whose memory does not hold it.
func (m *maker) memory() {
	has := m.Facts.MemoryBytes
	host := int64(queuefile.HostMemoryGiB(int(has>>30))) << 30
	if m.AllowSmall {
		host = smallHostBytes
	}
	var sum int64
	onNode := map[string]int64{}
	for _, s := range m.slots {
		sum += s.SliceBytes
		onNode[s.MemoryNodes] += s.SliceBytes
	}
	if sum+host > has {
		m.wrong("memory: got %.1f GiB, want %.1f: %.1f for the slots with their agents and %.1f for the machine itself", gib(has), gib(sum+host), gib(sum), gib(host))
		return
	}
	for _, n := range m.Facts.NUMANodes {
		name := cpulist.Format([]int{n.ID})
		if onNode[name] <= n.MemoryBytes {
			continue
		}
		m.note("NUMA node %s has %.1f GiB, less than its slots have together: they may use the memory of any node", name, gib(n.MemoryBytes))
		for _, s := range m.slots {
			if s.MemoryNodes == name {
				s.MemoryNodes = ""
			}
		}
	}
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }
