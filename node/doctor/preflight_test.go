package doctor

import (
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/node"
)

// fresh is a machine with docker and a GPU of NVIDIA that kbnode has not set up.
func fresh(t *testing.T) *world {
	t.Helper()
	w := healthy(t)
	for _, name := range []string{node.ConfigPath, node.TokenPath, node.HooksDir, node.SlotsDir, "/usr/bin/buildkite-agent", "/proc/100", "/proc/101"} {
		w.remove(name)
	}
	w.config = nil
	for name, body := range map[string]string{
		"/etc/os-release": "ID=debian\nVERSION_ID=\"13\"\n", "/proc/sys/kernel/hostname": "h100-01\n", "/proc/sys/kernel/arch": "x86_64\n",
		"/sys/bus/pci/devices/0000:10:00.0/vendor": "0x10de\n", "/sys/bus/pci/devices/0000:10:00.0/class": "0x030200\n",
		"/proc/driver/nvidia/gpus/0000:10:00.0/information": "Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t " + uuid + "\nDevice Minor: \t 7\n",
	} {
		w.write(name, body)
	}
	w.pages[registry] = "{}"
	return w
}

func (w *world) preflight() *Diagnosis {
	w.t.Helper()
	d, err := Preflight(w.t.Context(), w.machine(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func TestPreflightOfAGoodMachineHasNothingWrong(t *testing.T) {
	d := fresh(t).preflight()
	if want := len(sharedCodes) + len(bareChecks); !d.OK || d.Node != "h100-01" || len(d.Checks) != want {
		t.Errorf("OK %v, node %q, %d checks; want true, h100-01, %d", d.OK, d.Node, len(d.Checks), want)
	}
	found := map[string]string{}
	for _, r := range d.Checks {
		if r.State != OK || r.Text == "" {
			t.Errorf("%+v, want it to be in order, with a text", r)
		}
		found[r.Code] = r.Text
	}
	for code, want := range map[string]string{
		"distribution": "debian 13", "architecture": "x86_64", "gpu": "1 x NVIDIA H100 80GB HBM3", "systemd": "systemd 257", "docker": "docker 26.1.5 answers",
		"version-driver": "NVIDIA's driver 580.95.05", "version-runc": "runc 1.3.3",
	} {
		if found[code] != want {
			t.Errorf("%s: %q, want %q", code, found[code], want)
		}
	}
}

// bareFaults are faults of a machine that was not set up.
func bareFaults() map[string]fault {
	return map[string]fault{
		"no docker":     {func(w *world) { w.missing = []string{"docker"}; w.remove("/run/docker.sock"); w.engine = nil }, "docker"},
		"not root":      {func(w *world) { w.noRoot = true; w.engine = nil }, "root"},
		"docker is off": {func(w *world) { w.remove("/run/docker.sock"); w.engine = nil }, "docker"},
		"no network":    {func(w *world) { w.pages = nil }, "registry endpoint"},
		"no driver":     {func(w *world) { w.remove("/proc/driver") }, "gpu driver"},
		"no GPU, no docker": {func(w *world) {
			w.remove("/proc/driver")
			w.remove("/sys/bus")
			w.missing = []string{"docker"}
			w.engine = nil
		}, "gpu"},
		"other architecture": {func(w *world) { w.write("/proc/sys/kernel/arch", "s390x\n") }, "architecture"},
		"other distribution": {func(w *world) { w.write("/etc/os-release", "ID=nixos\n") }, "distribution"},
		"old runc":           {func(w *world) { w.engine["/version"] = strings.Replace(engineVersions, "1.3.3", "1.3.2", 1) }, "version-runc"},
		"AMD's GPU, no driver": {func(w *world) {
			w.write("/sys/bus/pci/devices/0000:20:00.0/vendor", "0x1002\n")
			w.write("/sys/bus/pci/devices/0000:20:00.0/class", "0x120000\n")
		}, "driver"},
		"agent of another set-up": {func(w *world) {
			w.write("/proc/7/cmdline", "buildkite-agent\x00start\x00")
			w.write("/proc/7/cgroup", "0::/system.slice/buildkite-agent-gpu0.service\n")
		}, "foreign-agents"},
	}
}

func TestPreflightFindsFaults(t *testing.T) {
	for name, fault := range bareFaults() {
		t.Run(name, func(t *testing.T) {
			w := fresh(t)
			fault.inject(w)
			d := w.preflight()
			if got := strings.Join(bad(d.Checks), " "); got != fault.code {
				t.Errorf("found %q, want %q", got, fault.code)
			}
			for _, r := range d.Checks {
				if (r.State == Failure || r.State == Warning) && r.Fix == "" {
					t.Errorf("%s: nothing says what mends it: %s", r.Code, r.Text)
				}
			}
		})
	}
}
