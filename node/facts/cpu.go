package facts

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/node/cpulist"
)

func (r *reader) processors() {
	r.CPUs, r.NUMANodes = []CPU{}, []NUMANode{}
	nodeOf := map[int]int{}
	for _, dir := range r.glob("sys/devices/system/node/node[0-9]*") {
		id := trailingNumber(dir)
		for _, cpu := range r.list(dir + "/cpulist") {
			nodeOf[cpu] = id
		}
		r.NUMANodes = append(r.NUMANodes, NUMANode{id, kibibytes(r.file(dir+"/meminfo"), "MemTotal:")})
	}
	for _, dir := range r.glob("sys/devices/system/cpu/cpu[0-9]*") {
		id := trailingNumber(dir)
		c := CPU{ID: id, Core: id, Socket: r.number(dir+"/topology/physical_package_id", 0), Node: nodeOf[id]}
		c.Online = r.line(dir+"/online") != "0" && r.there(dir) // the first often has no such file
		if siblings := r.list(dir + "/topology/thread_siblings_list"); len(siblings) > 0 {
			c.Core = slices.Min(siblings)
		}
		r.CPUs = append(r.CPUs, c)
	}
}

func (r *reader) memory() {
	info := r.file("proc/meminfo")
	r.MemoryBytes, r.SwapBytes = kibibytes(info, "MemTotal:"), kibibytes(info, "SwapTotal:")
	if len(r.NUMANodes) == 0 { // a kernel without NUMA
		r.NUMANodes = append(r.NUMANodes, NUMANode{0, r.MemoryBytes})
	}
}

// kibibytes finds "NAME 123 kB" in a file such as /proc/meminfo, in bytes.
func kibibytes(file, name string) int64 {
	_, rest, _ := strings.Cut(file, name)
	line, _, _ := strings.Cut(rest, "\n")
	f := strings.Fields(line)
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(f[0], 10, 64)
	return n << 10
}

// list reads a file with a list of processors. Parts that are none are left out.
func (r *reader) list(name string) []int {
	numbers, _ := cpulist.Parse(r.line(name))
	return numbers
}
