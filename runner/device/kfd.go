package device

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// kfdReader reads AMD's devices from the kernel's files below root.
type kfdReader struct{ root string }

// A kfdNode is one entry of KFD's topology that programs can use: a GPU, or a
// partition of one.
type kfdNode struct {
	dir    string // the topology entry
	minor  uint64 // of its render node
	gpuID  string // KFD's own number for it
	values map[string]uint64
	pci    string
}

// nodes lists the usable entries in KFD's order. An entry without a render
// node is a processor.
func (r *kfdReader) nodes() []kfdNode {
	dirs, _ := filepath.Glob(filepath.Join(r.root, "sys/class/kfd/kfd/topology/nodes/*"))
	slices.SortFunc(dirs, func(a, b string) int { return int(leaf(a)) - int(leaf(b)) })
	var out []kfdNode
	for _, dir := range dirs {
		values := readProperties(filepath.Join(dir, "properties"))
		if values["drm_render_minor"] == 0 {
			continue
		}
		location := values["location_id"]
		out = append(out, kfdNode{
			dir: dir, minor: values["drm_render_minor"], gpuID: readLine(filepath.Join(dir, "gpu_id")), values: values,
			pci: fmt.Sprintf("%04x:%02x:%02x.%d", values["domain"], location>>8&0xff, location>>3&0x1f, location&7),
		})
	}
	return out
}

func leaf(dir string) uint64 {
	n, _ := strconv.ParseUint(filepath.Base(dir), 10, 31)
	return n
}

func (r *kfdReader) report() *schema.DeviceReport {
	out := &schema.DeviceReport{Source: SourceSysfs, Vendor: AMD, Driver: readLine(filepath.Join(r.root, "sys/module/amdgpu/version"))}
	for i, n := range r.nodes() {
		now := r.sample(i, n)
		memory, _ := strconv.ParseUint(readLine(filepath.Join(r.device(n), "mem_info_vram_total")), 10, 64)
		d := schema.Device{
			Index: i, Name: r.name(n), PCI: n.pci, Node: fmt.Sprintf("/dev/dri/renderD%d", n.minor), Arch: gfx(n.values["gfx_target_version"]),
			MemoryBytes: memory, MaxClockSM: int(n.values["max_engine_clk_fcompute"]),
			ClockSM: now.ClockSM, ClockMemory: now.ClockMemory, Temperature: now.Temperature, PowerW: now.PowerW,
			PowerLimitW: r.hwmon(n, "power1_cap") / 1e6, ProcessBefore: now.Processes, ECC: r.ecc(n),
		}
		if id := n.values["unique_id"]; id != 0 {
			d.UUID = fmt.Sprintf("GPU-%016x", id) // as ROCm writes it; the same for all partitions of a card
		}
		out.Devices = append(out.Devices, d)
	}
	return out
}

func (r *kfdReader) samples() []Sample {
	var out []Sample
	for i, n := range r.nodes() {
		out = append(out, r.sample(i, n))
	}
	return out
}

func (r *kfdReader) sample(i int, n kfdNode) Sample {
	return Sample{
		Index:       i,
		ClockSM:     int(r.hwmon(n, "freq1_input") / 1e6),
		ClockMemory: int(r.hwmon(n, "freq2_input") / 1e6),
		Temperature: int(max(r.hwmon(n, "temp1_input"), r.hwmon(n, "temp2_input")) / 1000),
		PowerW:      max(r.hwmon(n, "power1_average"), r.hwmon(n, "power1_input")) / 1e6,
		Processes:   r.processes(n),
	}
}

// device is the PCI device's directory.
func (r *kfdReader) device(n kfdNode) string {
	return filepath.Join(r.root, "sys/class/drm", fmt.Sprintf("renderD%d", n.minor), "device")
}

// hwmon reads one of the device's sensors; 0 when there is none.
func (r *kfdReader) hwmon(n kfdNode, file string) float64 {
	found, _ := filepath.Glob(filepath.Join(r.device(n), "hwmon", "hwmon*", file))
	if len(found) == 0 {
		return 0
	}
	return figure(readLine(found[0]))
}

// name is what the board says it is. Virtual functions say nothing, and some
// boards a maker's own number: then the PCI id tells, and last KFD's own name,
// which is no product's.
func (r *kfdReader) name(n kfdNode) string {
	board, known := readLine(filepath.Join(r.device(n), "product_name")), instincts[n.values["device_id"]]
	if known != "" && !strings.HasPrefix(strings.ToLower(board), "amd instinct ") {
		return known
	}
	return cmp.Or(board, readLine(filepath.Join(n.dir, "name")))
}

// instincts are the names of AMD's accelerators by PCI device id.
//
// Source: libdrm, data/amdgpu.ids.
var instincts = map[uint64]string{
	0x738c: "AMD Instinct MI100",
	0x7408: "AMD Instinct MI250X", 0x740c: "AMD Instinct MI250X / MI250", 0x740f: "AMD Instinct MI210", 0x7410: "AMD Instinct MI210 VF",
	0x74a0: "AMD Instinct MI300A", 0x74a1: "AMD Instinct MI300X", 0x74b5: "AMD Instinct MI300X VF",
	0x74a9: "AMD Instinct MI300X HF", 0x74bd: "AMD Instinct MI300X HF",
	0x74a2: "AMD Instinct MI308X", 0x74b6: "AMD Instinct MI308X", 0x74a8: "AMD Instinct MI308X HF", 0x74a5: "AMD Instinct MI325X",
	0x75a0: "AMD Instinct MI350X", 0x75b0: "AMD Instinct MI350X VF", 0x75a3: "AMD Instinct MI355X", 0x75b3: "AMD Instinct MI355X VF",
}

// ecc reads the count of uncorrectable errors of the memory controller:
// "ue: 0", "ce: 0".
func (r *kfdReader) ecc(n kfdNode) *schema.ECC {
	data, err := os.ReadFile(filepath.Join(r.device(n), "ras", "umc_err_count"))
	if err != nil {
		return nil
	}
	out := &schema.ECC{Enabled: true}
	for line := range strings.Lines(string(data)) {
		if count, ok := strings.CutPrefix(strings.TrimSpace(line), "ue: "); ok {
			if v, err := strconv.ParseUint(count, 10, 64); err == nil {
				out.Uncorrected = &v
			}
		}
	}
	return out
}

// processes lists who holds memory of the device. KFD names processes as the
// host does.
func (r *kfdReader) processes(n kfdNode) []schema.Holder {
	files, _ := filepath.Glob(filepath.Join(r.root, "sys/class/kfd/kfd/proc/*/vram_"+n.gpuID))
	var out []schema.Holder
	for _, file := range files {
		used, err := strconv.ParseUint(readLine(file), 10, 64)
		pid := leaf(filepath.Dir(file))
		if err == nil && used > 0 && pid > 0 {
			out = append(out, schema.Holder{PID: int(pid), Bytes: used, Name: readLine(filepath.Join(r.root, "proc", fmt.Sprint(pid), "comm"))})
		}
	}
	return out
}

// gfx is "gfx942" of 90402: two digits each of minor and stepping, the stepping
// in hexadecimal.
func gfx(version uint64) string {
	if version == 0 {
		return ""
	}
	return fmt.Sprintf("gfx%d%d%x", version/10000, version/100%100, version%100)
}

// readProperties reads lines of "name number".
func readProperties(file string) map[string]uint64 {
	values := map[string]uint64{}
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		name, number, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if v, err := strconv.ParseUint(number, 10, 64); err == nil {
			values[name] = v
		}
	}
	return values
}

// readLine returns a small file's first line, "" when it cannot be read.
func readLine(file string) string {
	data, _ := os.ReadFile(file)
	line, _, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
	return text.Storable(line)
}
