package facts

import (
	"slices"
	"strconv"
	"strings"
)

func (r *reader) processors() {
	r.CPUs, r.NUMANodes = []CPU{}, []NUMANode{}
	nodeOf := map[int]int{}
	for _, dir := range r.glob("sys/devices/system/node/node[0-9]*") {
		id := trailingNumber(dir)
		for _, cpu := range List(r.line(dir + "/cpulist")) {
			nodeOf[cpu] = id
		}
		r.NUMANodes = append(r.NUMANodes, NUMANode{id, kibibytes(r.file(dir+"/meminfo"), "MemTotal:")})
	}
	for _, dir := range r.glob("sys/devices/system/cpu/cpu[0-9]*") {
		id := trailingNumber(dir)
		c := CPU{ID: id, Core: id, Socket: r.number(dir+"/topology/physical_package_id", 0), Node: nodeOf[id]}
		c.Online = r.line(dir+"/online") != "0" && r.there(dir) // the first often has no such file
		if siblings := List(r.line(dir + "/topology/thread_siblings_list")); len(siblings) > 0 {
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

// maxCPU bounds what a list may name: the kernel's own bound.
const maxCPU = 8192

// List reads a list as the kernel writes it, "0-7,64-71". What is no such list
// is left out.
func List(s string) []int {
	var out []int
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA != nil || errB != nil || a < 0 || b >= maxCPU {
			continue
		}
		for i := a; i <= b; i++ {
			out = append(out, i)
		}
	}
	return out
}

// FormatList writes numbers as the kernel writes a list.
func FormatList(numbers []int) string {
	sorted := slices.Sorted(slices.Values(numbers))
	var parts []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] <= sorted[j]+1 {
			j++
		}
		part := strconv.Itoa(sorted[i])
		if sorted[j] != sorted[i] {
			part += "-" + strconv.Itoa(sorted[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}
