package device

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/schema"
)

// tree writes files below a new root, "name: text" by "name: text".
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func amdTree(t *testing.T) string {
	const topology = "sys/class/kfd/kfd/topology/nodes/"
	node := func(minor, location int) string {
		return fmt.Sprintf("cpu_cores_count 0\nsimd_count 304\ngfx_target_version 90402\ndrm_render_minor %d\nlocation_id %d\ndomain 1\nunique_id 1152921504606846976\nmax_engine_clk_fcompute 2100\n", minor, location)
	}
	return tree(t, map[string]string{
		topology + "0/properties":                                   "cpu_cores_count 96\ndrm_render_minor 0\n",
		topology + "2/properties":                                   node(128, 0x0300),
		topology + "2/gpu_id":                                       "4711\n",
		topology + "2/name":                                         "aqua\n",
		topology + "10/properties":                                  node(136, 0x2501),
		topology + "10/gpu_id":                                      "815\n",
		"sys/module/amdgpu/version":                                 "6.10.5\n",
		"sys/class/drm/renderD128/device/product_name":              "AMD Instinct MI300X OAM\n",
		"sys/class/drm/renderD128/device/mem_info_vram_total":       "206141652992\n",
		"sys/class/drm/renderD128/device/ras/umc_err_count":         "ue: 1\nce: 4\n",
		"sys/class/drm/renderD128/device/hwmon/hwmon4/freq1_input":  "2100000000\n",
		"sys/class/drm/renderD128/device/hwmon/hwmon4/freq2_input":  "1300000000\n",
		"sys/class/drm/renderD128/device/hwmon/hwmon4/temp2_input":  "62000\n",
		"sys/class/drm/renderD128/device/hwmon/hwmon4/power1_input": "640000000\n",
		"sys/class/drm/renderD128/device/hwmon/hwmon4/power1_cap":   "750000000\n",
		"sys/class/kfd/kfd/proc/99/vram_4711":                       "1048576\n",
		"sys/class/kfd/kfd/proc/98/vram_4711":                       "0\n",
		"proc/99/comm":                                              "python3\n",
	})
}

func TestAMD(t *testing.T) {
	w := Probe(context.Background(), Machine{Root: amdTree(t)})
	defer w.Close()
	uncorrected := uint64(1)
	want := &schema.DeviceReport{Source: SourceSysfs, Vendor: AMD, Driver: "6.10.5", Devices: []schema.Device{
		{
			Index: 0, Name: "AMD Instinct MI300X OAM", UUID: "GPU-1000000000000000", PCI: "0001:03:00.0", Node: "/dev/dri/renderD128", Arch: "gfx942",
			MemoryBytes: 206141652992, MaxClockSM: 2100, ClockSM: 2100, ClockMemory: 1300, Temperature: 62, PowerW: 640, PowerLimitW: 750,
			ECC: &schema.ECC{Enabled: true, Uncorrected: &uncorrected}, ProcessBefore: []schema.Holder{{PID: 99, Name: "python3", Bytes: 1 << 20}},
		},
		{Index: 1, UUID: "GPU-1000000000000000", PCI: "0001:25:00.1", Node: "/dev/dri/renderD136", Arch: "gfx942", MaxClockSM: 2100},
	}}
	if diff := cmp.Diff(want, w.Report()); diff != "" {
		t.Errorf("Report (-want +got):\n%s", diff)
	}
	w.Begin()
	w.End(context.Background(), "leaderboard")
	if s := w.Report().Sampling; len(s) != 2 || s[0].Samples != 2 || s[0].PowerW.Max != 640 || s[0].Phase != "leaderboard" {
		t.Errorf("sampling %+v", s)
	}
	if got := w.After(context.Background()); len(got) != 1 {
		t.Errorf("after: %q", got)
	}
}

// A board that does not say its name is known by its PCI id; one whose id is not
// known, by nothing that a GPU type has.
func TestAMDNames(t *testing.T) {
	const node = "sys/class/kfd/kfd/topology/nodes/1/"
	mi300 := schema.DeviceType{Names: []string{"AMD Instinct MI300X", "AMD Instinct MI300X *"}, Arch: "gfx942", MemoryGiB: 180}
	for _, tt := range []struct {
		id            int
		product, want string
		outcome       string
	}{
		{0x74b5, "", "AMD Instinct MI300X VF", ""},
		{0x74a1, "", "AMD Instinct MI300X", ""},
		{0x74a5, "", "AMD Instinct MI325X", schema.OutcomeWrongMachine},
		{0x74a1, "AMD Instinct MI300X OAM", "AMD Instinct MI300X OAM", ""},
		{0x74a5, "AMD Instinct MI325X", "AMD Instinct MI325X", schema.OutcomeWrongMachine},
		{0x74a1, "102-G30211-00", "AMD Instinct MI300X", ""},
		{0xffff, "102-G30211-00", "102-G30211-00", schema.OutcomeWrongMachine},
		{0xffff, "", "ip discovery", schema.OutcomeWrongMachine},
	} {
		files := map[string]string{
			node + "properties": fmt.Sprintf("gfx_target_version 90402\ndrm_render_minor 128\ndevice_id %d\n", tt.id),
			node + "name":       "ip discovery\n",
			"sys/class/drm/renderD128/device/mem_info_vram_total": "206141652992\n",
		}
		if tt.product != "" {
			files["sys/class/drm/renderD128/device/product_name"] = tt.product + "\n"
		}
		w := Probe(context.Background(), Machine{Root: tree(t, files)})
		got, text := Requirements{Vendor: AMD, Type: mi300, GPUType: "MI300_BK"}.Check(w.Report(), w.Visible())
		if name := w.Report().Devices[0].Name; name != tt.want || got != tt.outcome {
			t.Errorf("%#x: name %q, want %q; %q %q, want %q", tt.id, name, tt.want, got, text, tt.outcome)
		}
		w.Close()
	}
}

func TestTPU(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"/dev/accel0 /dev/accel2 /dev/accel10": {"dev/accel0": "", "dev/accel10": "", "dev/accel2": "", "dev/vfio/3": ""},
		"/dev/vfio/0 /dev/vfio/12":             {"dev/vfio/12": "", "dev/vfio/0": "", "dev/vfio/vfio": "", "sys/bus/pci/devices/0000:00:05.0/vendor": "0x1ae0\n"},
		"":                                     {"dev/vfio/12": "", "sys/bus/pci/devices/0000:00:05.0/vendor": "0x8086\n"},
	} {
		w := Probe(context.Background(), Machine{Root: tree(t, files)})
		var nodes []string
		for _, d := range w.Report().Devices {
			nodes = append(nodes, d.Node)
		}
		if got := strings.Join(nodes, " "); got != want || (want != "") != (w.Report().Vendor == TPU) {
			t.Errorf("nodes %q, vendor %q, want %q", got, w.Report().Vendor, want)
		}
		w.Close()
	}
}
