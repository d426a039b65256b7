package facts

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/node/cpulist"
)

// amd reads KFD's topology. An entry without a render node is a processor; each
// other one is a GPU, or a partition of one, whose UUID is then the card's. What
// names a partition is its render node, and its PCI address with the partition's
// number for a function. Minors need not begin at 128.
func (r *reader) amd() {
	index := 0
	for _, dir := range r.glob("sys/class/kfd/kfd/topology/nodes/[0-9]*") {
		values := properties(r.file(dir + "/properties"))
		minor := int(values["drm_render_minor"])
		if minor == 0 {
			continue
		}
		node := fmt.Sprintf("/dev/dri/renderD%d", minor)
		at := values["location_id"]
		g := GPU{
			Vendor: AMD, Index: index, Minor: minor, Nodes: []string{"/dev/kfd", node},
			PCI:  fmt.Sprintf("%04x:%02x:%02x.%d", values["domain"], at>>8&0xff, at>>3&0x1f, at&7),
			Name: r.line(fmt.Sprintf("sys/class/drm/renderD%d/device/product_name", minor)),
		}
		// A partition is no PCI function of its own: the card's answers for it.
		card := g.PCI[:len(g.PCI)-1] + "0"
		g.Node = r.number("sys/bus/pci/devices/"+g.PCI+"/numa_node", r.number("sys/bus/pci/devices/"+card+"/numa_node", -1))
		if id := values["unique_id"]; id != 0 {
			g.UUID = fmt.Sprintf("GPU-%016x", id)
		}
		for _, n := range g.Nodes {
			gid, open, ok := r.Group(n)
			if !ok {
				r.unread("%s: it is not there, although the driver lists the GPU", n)
			} else if !open && gid > 0 && !slices.Contains(g.Groups, gid) {
				g.Groups = append(g.Groups, gid)
			}
		}
		r.GPUs = append(r.GPUs, g)
		index++
	}
}

// properties reads lines of "name number".
func properties(file string) map[string]uint64 {
	values := map[string]uint64{}
	for line := range strings.Lines(file) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseUint(number, 10, 64); err == nil {
			values[name] = v
		}
	}
	return values
}

// googlePCI is Google's number among PCI vendors.
const googlePCI = "0x1ae0"

// tpu lists TPU chips: /dev/accel<n> on older machines, /dev/vfio/<group> with
// /dev/vfio/vfio on newer ones, where a PCI device must be Google's, as a VFIO
// group alone may be anything.
func (r *reader) tpu() {
	nodes, common := r.glob("dev/accel[0-9]*"), []string(nil)
	if len(nodes) == 0 && slices.ContainsFunc(r.glob("sys/bus/pci/devices/*/vendor"), func(f string) bool { return r.line(f) == googlePCI }) {
		nodes, common = r.glob("dev/vfio/[0-9]*"), []string{"/dev/vfio/vfio"}
	}
	for i, node := range nodes {
		r.GPUs = append(r.GPUs, GPU{
			Vendor: Google, Index: i, Name: "TPU", Minor: trailingNumber(node), Node: -1, Nodes: append([]string{node}, common...),
		})
	}
}

func (r *reader) processors() {
	nodeOf := map[int]int{}
	for _, dir := range r.glob("sys/devices/system/node/node[0-9]*") {
		id := trailingNumber(dir)
		for _, cpu := range r.list(dir + "/cpulist") {
			nodeOf[cpu] = id
		}
		r.NUMANodes = append(r.NUMANodes, NUMANode{id, Kibibytes(r.file(dir+"/meminfo"), "MemTotal:")})
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
	r.MemoryBytes, r.SwapBytes = Kibibytes(info, "MemTotal:"), Kibibytes(info, "SwapTotal:")
	if len(r.NUMANodes) == 0 { // a kernel without NUMA
		r.NUMANodes = append(r.NUMANodes, NUMANode{0, r.MemoryBytes})
	}
}

// Kibibytes finds "NAME 123 kB" in a file such as /proc/meminfo, in bytes.
func Kibibytes(file, name string) int64 {
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

func (r *reader) docker(ctx context.Context) {
	cli, ok := r.Tools["docker"]
	if !ok {
		return
	}
	d := &Docker{CLI: cli, CDIDirs: []string{}, DaemonJSON: r.file("etc/docker/daemon.json")}
	r.Docker = d
	for _, socket := range []string{"/run/docker.sock", "/var/run/docker.sock"} {
		if d.Socket == "" && r.there(socket) {
			d.Socket = socket
		}
	}
	out := r.run(ctx, cli, "info", "--format", "{{json .}}")
	if out == "" {
		return
	}
	var info struct {
		ServerVersion      string
		CgroupDriver       string
		CDISpecDirs        []string
		LiveRestoreEnabled bool
		DockerRootDir      string
		ContainersRunning  int
		ServerErrors       []string
	}
	if err := json.Unmarshal([]byte(out), &info); err != nil {
		r.unread("docker info: %v", err)
		return
	}
	for _, e := range info.ServerErrors { // docker info ends with 0 then
		r.unread("docker info: %s", e)
	}
	d.Version, d.CgroupDriver, d.LiveRestore = info.ServerVersion, info.CgroupDriver, info.LiveRestoreEnabled
	d.Root, d.Running = info.DockerRootDir, info.ContainersRunning
	d.CDIDirs = append(d.CDIDirs, info.CDISpecDirs...)
}

// CDISpecs reads the specs of a machine below root where an engine looks for them.
// It calls fault for a file that is not one.
func CDISpecs(root string, fault func(file string, err error)) []CDISpec {
	r := &reader{Machine: Machine{Root: root}}
	var files []string
	for _, dir := range []string{"etc/cdi", "var/run/cdi"} {
		for _, ext := range []string{"*.json", "*.yaml"} { // engines read no other
			files = append(files, r.glob(path.Join(dir, ext))...)
		}
	}
	slices.Sort(files)
	specs := []CDISpec{}
	for _, file := range files {
		var spec struct {
			Kind    string `yaml:"kind"`
			Devices []struct {
				Name string `yaml:"name"`
			} `yaml:"devices"`
		}
		if err := yaml.Unmarshal([]byte(r.file(file)), &spec); err != nil { // JSON is YAML
			fault(file, err)
			continue
		}
		s := CDISpec{Path: file, Kind: spec.Kind, Devices: []string{}}
		for _, d := range spec.Devices {
			s.Devices = append(s.Devices, d.Name)
		}
		specs = append(specs, s)
	}
	return specs
}
