package facts

import (
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

// nvidia reads the driver's own files, which need no library: name, UUID, minor.
// nvidia-smi is asked for what they lack.
func (r *reader) nvidia(ctx context.Context) {
	r.Driver = find(nvidiaVersion(), r.line("proc/driver/nvidia/version"))
	var gpus []GPU
	for _, file := range r.glob("proc/driver/nvidia/gpus/*/information") {
		gpus = append(gpus, r.information(file))
	}
	if len(gpus) == 0 {
		return
	}
	slices.SortFunc(gpus, func(a, b GPU) int { return strings.Compare(a.PCI, b.PCI) })
	for i := range gpus {
		gpus[i].Index = i
		gpus[i].Instances = r.capabilities(gpus[i].Minor)
	}
	r.askSMI(ctx, gpus)
	for i := range gpus {
		gpus[i].MIG = gpus[i].MIG || len(gpus[i].Instances) > 0
	}
	r.GPUs = append(r.GPUs, gpus...)
	for _, node := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"} {
		if r.there(node) {
			r.Common = append(r.Common, node)
		}
	}
	r.libraries(ctx)
}

var nvidiaVersion = text.Pattern(`\b([0-9]{3,}\.[0-9.]*[0-9])\b`)

// information reads one GPU's file: lines of "Name: value".
func (r *reader) information(file string) GPU {
	g := GPU{Vendor: NVIDIA, PCI: strings.ToLower(path.Base(path.Dir(file))), Minor: -1}
	for line := range strings.Lines(r.file(file)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "Model":
			g.Name = value
		case "GPU UUID":
			if !strings.Contains(value, "?") { // a GPU that nobody opened since the driver was loaded
				g.UUID = value
			}
		case "Device Minor":
			if n, err := strconv.Atoi(value); err == nil {
				g.Minor = n
			}
		}
	}
	g.Node = r.number("sys/bus/pci/devices/"+g.PCI+"/numa_node", -1)
	g.Nodes = []string{fmt.Sprintf("/dev/nvidia%d", g.Minor)}
	return g
}

// capabilities lists the instances of the GPU with a minor number, by the numbers of GPU
// and compute instance. A directory gpuN is named for the minor, not the index;
// a cap's file says which /dev/nvidia-caps/nvidia-cap belongs to it.
func (r *reader) capabilities(minor int) []Instance {
	base := fmt.Sprintf("/proc/driver/nvidia/capabilities/gpu%d/mig/", minor)
	var all []Instance
	for _, file := range r.glob(base + "gi[0-9]*/ci[0-9]*/access") {
		ci := path.Dir(file)
		gi := path.Dir(ci)
		in := Instance{GPU: trailingNumber(gi), Compute: trailingNumber(ci)}
		for _, access := range []string{gi + "/access", file} {
			for line := range strings.Lines(r.file(access)) {
				if n, ok := strings.CutPrefix(strings.TrimSpace(line), "DeviceFileMinor:"); ok {
					in.Nodes = append(in.Nodes, "/dev/nvidia-caps/nvidia-cap"+strings.TrimSpace(n))
				}
			}
		}
		all = append(all, in)
	}
	slices.SortFunc(all, func(a, b Instance) int { return cmp.Or(a.GPU-b.GPU, a.Compute-b.Compute) })
	return all
}

var (
	smiGPU = text.Pattern(`^GPU ([0-9]+): (.*) \(UUID: (GPU-[0-9a-f-]+)\)`)
	smiMIG = text.Pattern(`^\s+MIG (\S+)\s+Device\s+([0-9]+): \(UUID: (MIG-\S+)\)`)
)

// askSMI fills in UUIDs of MIG instances, and whether a GPU is in MIG mode.
//
// nvidia-smi -L names instances by UUID and a number of its own, and -q -x tells
// which instance such a number is. Where the second gives no answer, the numbers
// are taken to follow the order of the instances, which is what NVML does on all
// machines whose lists are public.
func (r *reader) askSMI(ctx context.Context, gpus []GPU) {
	smi, ok := r.Tools["nvidia-smi"]
	if !ok {
		r.unread("nvidia-smi is not on PATH: MIG mode and instances are not known")
		return
	}
	r.mode(r.run(ctx, smi, "--query-gpu=pci.bus_id,uuid,mig.mode.current", "--format=csv,noheader"), gpus)
	if !slices.ContainsFunc(gpus, func(g GPU) bool { return g.MIG || len(g.Instances) > 0 }) {
		return
	}
	numbers := instanceNumbers(r.run(ctx, smi, "-q", "-x"))
	var at *GPU
	for line := range strings.Lines(r.run(ctx, smi, "-L")) {
		if m := smiGPU().FindStringSubmatch(line); m != nil {
			at = nil
			if i := slices.IndexFunc(gpus, func(g GPU) bool { return g.UUID == m[3] }); i >= 0 {
				at = &gpus[i]
			}
		} else if m := smiMIG().FindStringSubmatch(line); m != nil && at != nil {
			number, _ := strconv.Atoi(m[2])
			in := at.instance(number, numbers[at.UUID])
			if in == nil {
				r.unread("%s: no capability in /proc/driver/nvidia belongs to it", m[3])
				continue
			}
			in.UUID, in.Profile = m[3], m[1]
		}
	}
}

// mode reads nvidia-smi's lines of "00000000:3B:00.0, GPU-..., Enabled".
func (r *reader) mode(csv string, gpus []GPU) {
	for line := range strings.Lines(csv) {
		f := strings.Split(strings.TrimSpace(line), ", ")
		if len(f) != 3 {
			continue
		}
		bus := strings.ToLower(f[0])
		for i := range gpus {
			g := &gpus[i]
			// nvidia-smi writes eight digits of the domain, the kernel four.
			if g.UUID != f[1] && !(len(bus) > len(g.PCI) && strings.HasSuffix(bus, g.PCI)) {
				continue
			}
			if g.UUID == "" && strings.HasPrefix(f[1], "GPU-") {
				g.UUID = f[1]
			}
			g.MIG = f[2] == "Enabled"
		}
	}
}

// instance finds the one that nvidia-smi gives a number.
func (g *GPU) instance(number int, known map[int]Instance) *Instance {
	if want, ok := known[number]; ok {
		for i := range g.Instances {
			if in := &g.Instances[i]; in.GPU == want.GPU && in.Compute == want.Compute {
				return in
			}
		}
		return nil
	}
	if len(known) > 0 || number >= len(g.Instances) {
		return nil
	}
	return &g.Instances[number]
}

// instanceNumbers reads nvidia-smi -q -x: for each GPU's UUID which instance has
// which number. Empty where it is not that XML.
func instanceNumbers(doc string) map[string]map[int]Instance {
	var log struct {
		GPUs []struct {
			UUID    string `xml:"uuid"`
			Devices []struct {
				Index   int `xml:"index"`
				GPU     int `xml:"gpu_instance_id"`
				Compute int `xml:"compute_instance_id"`
			} `xml:"mig_devices>mig_device"`
		} `xml:"gpu"`
	}
	if xml.Unmarshal([]byte(doc), &log) != nil {
		return nil
	}
	out := map[string]map[int]Instance{}
	for _, g := range log.GPUs {
		out[g.UUID] = map[int]Instance{}
		for _, d := range g.Devices {
			out[g.UUID][d.Index] = Instance{GPU: d.GPU, Compute: d.Compute}
		}
	}
	return out
}

// driverLibraries are those that programs load at run time and that come with the
// driver, never with an image.
var driverLibraries = []string{
	"libcuda.so.1", "libcudadebugger.so.1", "libnvidia-ml.so.1", "libnvidia-nvvm.so.4", "libnvidia-ptxjitcompiler.so.1",
	"libnvidia-gpucomp.so", "libnvidia-opencl.so.1",
}

// libraries asks the loader's cache, whose lines are "NAME (libc6,x86-64) => PATH".
func (r *reader) libraries(ctx context.Context) {
	for line := range strings.Lines(r.run(ctx, "ldconfig", "-p")) {
		name, file, ok := strings.Cut(strings.TrimSpace(line), " => ")
		base, kind, _ := strings.Cut(name, " ")
		if !ok || !strings.Contains(kind, "64") { // 32-bit ones are in the cache as well
			continue
		}
		if slices.ContainsFunc(driverLibraries, func(want string) bool { return base == want || strings.HasPrefix(base, want+".") }) {
			r.Libraries = append(r.Libraries, file)
		}
	}
	slices.Sort(r.Libraries)
	r.Libraries = slices.Compact(r.Libraries)
	if smi, ok := r.Tools["nvidia-smi"]; ok {
		r.Libraries = append(r.Libraries, smi)
	}
}
