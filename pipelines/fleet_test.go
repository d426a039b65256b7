package pipelines

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

// devices are what drivers tell of real boards, and the types that take them.
var devices = []struct {
	name, arch string
	mib        uint64
	types      string
}{
	{"NVIDIA H100 80GB HBM3", "90", 81559, "H100_BK H100x8"},
	{"NVIDIA H100 PCIe", "90", 81559, "H100_BK H100x8"},
	{"NVIDIA H100 NVL", "90", 95830, "H100_BK H100x8"},
	{"NVIDIA H100 80GB HBM3 MIG 1g.10gb", "90", 9728, "H100_1G10GB"},
	{"NVIDIA H100 80GB HBM3 MIG 3g.40gb", "90", 40448, ""},
	{"NVIDIA H200", "90", 143771, ""},
	{"NVIDIA GH200 480GB", "90", 97871, ""},
	{"NVIDIA H800", "90", 81559, ""},
	{"NVIDIA B200", "100", 183359, "B200_BK"},
	{"NVIDIA GB200", "100", 189471, ""},
	{"NVIDIA B300 SXM6 AC", "103", 275040, ""},
	{"NVIDIA L40S", "89", 46068, "L40S_BK"},
	{"NVIDIA L40", "89", 46068, ""},
	{"NVIDIA L4", "89", 23034, "L4 L4x4"},
	{"NVIDIA A100-SXM4-80GB", "80", 81920, "A100"},
	{"NVIDIA A100 80GB PCIe", "80", 81920, "A100"},
	{"NVIDIA A100-SXM4-40GB", "80", 40960, ""},
	{"NVIDIA A100X", "80", 81920, ""},
	{"Tesla T4", "75", 15360, "T4"},
	{"NVIDIA T4G", "75", 15360, ""},
	{"AMD Instinct MI300X", "gfx942", 196288, "MI300_BK MI300x8"},
	{"AMD Instinct MI300X OAM", "gfx942", 196592, "MI300_BK MI300x8"},
	{"AMD Instinct MI300X VF", "gfx942", 196288, "MI300_BK MI300x8"},
	{"AMD Instinct MI300A", "gfx942", 131072, ""},
	{"AMD Instinct MI308X", "gfx942", 196592, ""},
	{"AMD Instinct MI325X", "gfx942", 262128, ""},
	{"AMD INSTINCT MI250 (MCM) OAM AC MBA", "gfx90a", 65520, "MI250"},
	{"AMD Instinct MI250X / MI250", "gfx90a", 65520, "MI250"},
	{"AMD Instinct MI210", "gfx90a", 65520, ""},
	{"AMD Instinct MI355X", "gfx950", 294896, "MI355X"},
	{"AMD Instinct MI350X", "gfx950", 294896, ""},
	{"TPU", "", 0, "GOOGLE_TPU"},
	{"aqua vanjaram", "gfx942", 196592, ""}, // a name that is no product's
}

func TestFleetKnowsItsDevices(t *testing.T) {
	met := map[string]bool{}
	for _, d := range devices {
		var types []string
		for _, g := range Fleet {
			if g.Vendor != NoGPU && g.Device.Mismatch(schema.Device{Name: d.name, Arch: d.arch, MemoryBytes: d.mib << 20}) == "" {
				types = append(types, g.Name)
				met[g.Name] = true
			}
		}
		if got := strings.Join(types, " "); got != d.types {
			t.Errorf("%s, %s, %d MiB is a device of %q, want %q", d.name, d.arch, d.mib, got, d.types)
		}
	}
	for _, g := range Fleet {
		if g.Vendor != NoGPU && !met[g.Name] {
			t.Errorf("no device here is one of %s", g.Name)
		}
	}
}

// What a step says of the device is said whatever it is, so that no variable of
// the build can say something else.
func TestStepsSayTheDevice(t *testing.T) {
	p, err := Find("evaluate")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range Fleet.On() {
		steps, err := p.Steps(Request{GPUs: []GPUType{g}, Secret: &Run{ID: "s"}})
		if err != nil || len(steps) != 2 {
			t.Fatalf("Steps(%s): %d, %v", g.Name, len(steps), err)
		}
		for _, s := range steps {
			want := []string{schema.EnvGPU, schema.EnvQueue, schema.EnvGPUVendor}
			if g.Vendor != NoGPU {
				want = append(want, schema.EnvGPUCount, schema.EnvGPUName, schema.EnvGPUArch, schema.EnvGPUMemoryGiB)
			}
			for _, name := range want {
				if !slices.ContainsFunc(s.Env, func(v Var) bool { return v.Name == name }) {
					t.Errorf("%s does not set %s", s.Key, name)
				}
			}
		}
	}
}

// A static step leaves the build's wish as it is, says its own beside it, and
// shows both to kbrun.
func TestStaticStepKeepsTheWish(t *testing.T) {
	p, err := Find("bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	g, err := Fleet.Lookup("H100_BK")
	if err != nil {
		t.Fatal(err)
	}
	steps, err := p.Steps(Request{GPUs: []GPUType{g}, Static: true})
	if err != nil || len(steps) != 1 {
		t.Fatalf("Steps: %d, %v", len(steps), err)
	}
	set := map[string]string{}
	for _, v := range steps[0].Env {
		set[v.Name] = v.Value
	}
	if _, said := set[schema.EnvGPU]; said || set[schema.EnvStepGPU] != "H100_BK" || set[schema.EnvStepQueue] != "h100" || set[schema.EnvGPUName] != "NVIDIA H100 *" {
		t.Errorf("env %v", set)
	}
	for _, name := range []string{schema.EnvGPU, schema.EnvQueue, schema.EnvOldQueue} {
		if !slices.Contains(steps[0].Pass, name) {
			t.Errorf("%s is not passed on: %q", name, steps[0].Pass)
		}
	}
}
