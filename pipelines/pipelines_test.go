package pipelines

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

func TestFleetIsValid(t *testing.T) {
	if err := Fleet.Validate(); err != nil {
		t.Errorf("Fleet.Validate() = %v, want nil", err)
	}
}

// good is a row that keeps every rule; the cases below break one each.
func good() GPUType {
	return GPUType{Name: "X1_BK", Vendor: NVIDIA, Arch: "90a", Queue: "x1", GPUs: 1, CPUs: 8, MemoryGiB: 64,
		Device:   schema.DeviceType{Names: []string{"NVIDIA X1 *"}, Arch: "90", MemoryGiB: 75},
		Platform: Docker, Image: "ghcr.io/a/b:1", Isolation: Node, Timeout: 15 * time.Minute}
}

// by turns a row into one of another vendor.
func by(g *GPUType, v Vendor, d schema.DeviceType) { g.Vendor, g.Arch, g.Device = v, "", d }

var (
	mi   = schema.DeviceType{Names: []string{"AMD Instinct MI1X"}, Arch: "gfx942", MemoryGiB: 180}
	tpu  = schema.DeviceType{Names: []string{"TPU"}}
	part = schema.DeviceType{Names: []string{"NVIDIA X1 * MIG 1g.10gb"}, Arch: "90"}
)

// pod is one that says everything.
var pod = Pod{
	NodeSelector: []Var{{"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"}},
	Tolerations:  []Toleration{{Key: "nvidia.com/gpu", Effect: "NoSchedule"}, {Key: "team", Value: "kernels"}},
	RuntimeClass: "nvidia",
}

func TestValidateRow(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*GPUType)
		want  string // "" means valid
	}{
		{"good", func(*GPUType) {}, ""},
		{"lower case name", func(g *GPUType) { g.Name = "x1" }, "Name"},
		{"no queue", func(g *GPUType) { g.Queue = "" }, "Queue"},
		{"queue with a dollar", func(g *GPUType) { g.Queue = "$Q" }, "Queue"},
		{"no CPUs", func(g *GPUType) { g.CPUs = 0 }, "CPUs"},
		{"no memory", func(g *GPUType) { g.MemoryGiB = 0 }, "MemoryGiB"},
		{"half minutes", func(g *GPUType) { g.Timeout = 330 * time.Second }, "Timeout"},
		{"no timeout", func(g *GPUType) { g.Timeout = 0 }, "Timeout"},
		{"too short for a container", func(g *GPUType) { g.Timeout = 4 * time.Minute }, "Timeout"},
		{"a day", func(g *GPUType) { g.Timeout = 24 * time.Hour }, "Timeout"},
		{"vendor left out", func(g *GPUType) { g.Vendor = "" }, "Vendor"},
		{"vendor unknown", func(g *GPUType) { g.Vendor = "intel" }, "Vendor"},
		{"slice", func(g *GPUType) { g.Slice, g.Device = "1g.10gb", part }, ""},
		{"slice misspelt", func(g *GPUType) { g.Slice = "1g10gb" }, "Slice"},
		{"slice of two", func(g *GPUType) { g.Slice, g.GPUs = "1g.10gb", 2 }, "Slice"},
		{"slice chosen by the step", func(g *GPUType) { g.Slice, g.Isolation, g.MachineGPUs = "1g.10gb", Step, 1 }, "Slice"},
		{"shared memory beyond the memory", func(g *GPUType) { g.ShmGiB = 65 }, "ShmGiB"},
		{"a sandbox nobody knows", func(g *GPUType) { g.Sandbox = "strong" }, "Sandbox"},
		{"TPU", func(g *GPUType) { by(g, Google, tpu) }, ""},
		{"Kubernetes", func(g *GPUType) { g.Platform, g.ResourceClass = Kubernetes, "gpu" }, ""},
		{"Kubernetes without a class", func(g *GPUType) { g.Platform = Kubernetes }, "ResourceClass"},
		{"class in docker", func(g *GPUType) { g.ResourceClass = "gpu" }, "ResourceClass"},
		{"Kubernetes, step", func(g *GPUType) { g.Platform, g.Isolation = Kubernetes, Step }, ""},
		{"pod", func(g *GPUType) { g.Platform, g.Isolation, g.Pod = Kubernetes, Step, pod }, ""},
		{"pod and shared memory", func(g *GPUType) { g.Platform, g.Isolation, g.ShmGiB = Kubernetes, Step, 32 }, ""},
		{"shared memory of a class", func(g *GPUType) { g.Platform, g.ResourceClass, g.ShmGiB = Kubernetes, "gpu", 32 }, "ShmGiB"},
		{"pod in docker", func(g *GPUType) { g.Pod = pod }, "Pod"},
		{"pod beside a class", func(g *GPUType) { g.Platform, g.ResourceClass, g.Pod = Kubernetes, "gpu", pod }, "Pod"},
		{"label with a dollar", func(g *GPUType) {
			g.Platform, g.Isolation, g.Pod.NodeSelector = Kubernetes, Step, []Var{{"gpu", "$GPU"}}
		}, "Pod.NodeSelector"},
		{"label without a name", func(g *GPUType) {
			g.Platform, g.Isolation, g.Pod.NodeSelector = Kubernetes, Step, []Var{{"nvidia.com/", "x"}}
		}, "Pod.NodeSelector"},
		{"effect unknown", func(g *GPUType) {
			g.Platform, g.Isolation, g.Pod.Tolerations = Kubernetes, Step, []Toleration{{Key: "gpu", Effect: "noSchedule"}}
		}, "Pod.Tolerations"},
		{"runtime class with capitals", func(g *GPUType) { g.Platform, g.Isolation, g.Pod.RuntimeClass = Kubernetes, Step, "NVIDIA" }, "Pod.RuntimeClass"},
		{"arch with its point", func(g *GPUType) { g.Arch = "9.0" }, "Arch"},
		{"arch on AMD", func(g *GPUType) { g.Vendor = AMD }, "Arch"},
		{"AMD", func(g *GPUType) { by(g, AMD, mi) }, ""},
		{"GPU without a vendor", func(g *GPUType) { g.Vendor, g.Arch = NoGPU, "" }, "GPUs"},
		{"vendor without a GPU", func(g *GPUType) { g.GPUs = 0 }, "GPUs"},
		{"no device", func(g *GPUType) { g.Device = schema.DeviceType{} }, "Device.Names"},
		{"no device of AMD", func(g *GPUType) { by(g, AMD, schema.DeviceType{}) }, "Device.Arch"},
		{"no TPU", func(g *GPUType) { by(g, Google, schema.DeviceType{}) }, "Device.Names"},
		{"device without memory", func(g *GPUType) { g.Device.MemoryGiB = 0 }, "Device.MemoryGiB"},
		{"device's memory in MiB", func(g *GPUType) { g.Device.MemoryGiB = 81559 }, "Device.MemoryGiB"},
		{"device of another architecture", func(g *GPUType) { g.Device.Arch = "89" }, "Device.Arch"},
		{"device with nvcc's architecture", func(g *GPUType) { g.Device.Arch = "90a" }, "Device.Arch"},
		{"AMD's device without gfx", func(g *GPUType) { by(g, AMD, mi); g.Device.Arch = "942" }, "Device.Arch"},
		{"a TPU that tells too much", func(g *GPUType) { by(g, Google, mi) }, "Device.Arch"},
		{"any device's name", func(g *GPUType) { g.Device.Names = []string{"*"} }, "Device.Names"},
		{"an empty name", func(g *GPUType) { g.Device.Names = []string{"NVIDIA X1", ""} }, "Device.Names"},
		{"two names in one", func(g *GPUType) { g.Device.Names = []string{"NVIDIA X1|*"} }, "Device.Names"},
		{"a name with a dollar", func(g *GPUType) { g.Device.Names = []string{"NVIDIA $X1"} }, "Device.Names"},
		{"a slice's name for a whole GPU", func(g *GPUType) { g.Device.Names = []string{"NVIDIA X1 mig 1g.10gb"} }, "Device.Names"},
		{"a whole GPU's name for a slice", func(g *GPUType) { g.Slice, g.Device.MemoryGiB = "1g.10gb", 0 }, "Device.Names"},
		{"another slice's name", func(g *GPUType) { g.Slice, g.Device = "1g.20gb", part }, "Device.Names"},
		{"a device without a GPU", func(g *GPUType) { g.Vendor, g.Arch, g.GPUs = NoGPU, "", 0 }, "Device"},
		{"platform left out", func(g *GPUType) { g.Platform = "" }, "Platform"},
		{"image on the host", func(g *GPUType) { g.Platform = Host }, "Image"},
		{"no image", func(g *GPUType) { g.Image = "" }, "Image"},
		{"isolation left out", func(g *GPUType) { g.Isolation = "" }, "Isolation"},
		{"machine with one GPU", func(g *GPUType) { g.Isolation, g.MachineGPUs = Step, 1 }, ""},
		{"machine with two GPUs", func(g *GPUType) { g.Isolation, g.MachineGPUs = Step, 2 }, "MachineGPUs"},
		{"machine of unknown size", func(g *GPUType) { g.Isolation = Step }, "MachineGPUs"},
		{"node isolation counts GPUs", func(g *GPUType) { g.MachineGPUs = 1 }, "MachineGPUs"},
		{"step isolation on the host", func(g *GPUType) {
			g.Platform, g.Image, g.Isolation, g.MachineGPUs = Host, "", Step, 1
		}, "Isolation"},
		{"AMD step without groups", func(g *GPUType) {
			g.Vendor, g.Arch, g.Isolation, g.MachineGPUs = AMD, "", Step, 1
		}, "DeviceGroups"},
		{"AMD step with group names", func(g *GPUType) {
			g.Vendor, g.Arch, g.Isolation, g.MachineGPUs, g.DeviceGroups = AMD, "", Step, 1, []string{"render"}
		}, "DeviceGroups"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := good()
			tt.spoil(&g)
			err := g.Validate()
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("Validate(%+v) = %v, want nil", g, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), ": "+tt.want+": ")):
				t.Errorf("Validate(%+v) = %v, want a fault of %s", g, err, tt.want)
			}
		})
	}
}

func TestValidateTableNamesEveryFault(t *testing.T) {
	a, b := good(), good()
	b.Name, b.CPUs = "x1_bk", 0
	err := Table{a, b}.Validate()
	for _, want := range []string{`Name: got "x1_bk", want capitals`, "CPUs: got 0", "not that of X1_BK", "Queue: got \"x1\", want a queue of its own"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() = %v, want it to contain %q", err, want)
		}
	}
	var field *schema.Finding
	if !errors.As(err, &field) {
		t.Errorf("Validate() = %T, want a *schema.Finding within", err)
	}
}

func TestLookup(t *testing.T) {
	off := good()
	off.Name, off.Queue, off.Off = "X2_BK", "x2", "machine moved"
	table := Table{good(), off}

	for _, name := range []string{"X1_BK", "x1_bk"} {
		if g, err := table.Lookup(name); err != nil || g.Name != "X1_BK" {
			t.Errorf("Lookup(%q) = %q, %v, want X1_BK", name, g.Name, err)
		}
	}
	if g, err := table.LookupQueue("x1"); err != nil || g.Name != "X1_BK" {
		t.Errorf("LookupQueue(x1) = %q, %v, want X1_BK", g.Name, err)
	}
	if _, err := table.LookupQueue("X1"); err == nil {
		t.Error("LookupQueue(X1) found a queue, want none: queues are compared exactly")
	}
	_, err := table.Lookup("X2_BK")
	if o := new(OffError); !errors.As(err, &o) || o.Reason != "machine moved" {
		t.Errorf("Lookup(X2_BK) = %v, want an OffError with its reason", err)
	}
	_, err = table.Lookup("X3_B")
	const want = `unknown GPU type "X3_B", nearest is X1_BK, have ["X1_BK" "X2_BK"]`
	if err == nil || err.Error() != want {
		t.Errorf("Lookup(X3_B) = %v, want %s", err, want)
	}
	if got := table.Available().Names(); len(got) != 1 || got[0] != "X1_BK" {
		t.Errorf("Available() = %q, want X1_BK alone", got)
	}
}

// A vendor's own queue means the row of its GPU type, and stays the queue.
func TestVendorsOwnQueues(t *testing.T) {
	on := Fleet.On()
	for queue, want := range map[string]string{
		"h100": "H100_BK", "nvidia-h100-0": "H100_BK", "nvidia-h100-15": "H100_BK", "nvidia-h100": "H100_BK",
		"nebius-h100-0": "H100_BK", "two-words-h100-3": "H100_BK", "amd-mi300-0": "MI300_BK", "google-tpu-0": "GOOGLE_TPU",
		"google-tpu": "GOOGLE_TPU", "acme-l40s-1": "L40S_BK", "acme-test-1": "L40S_BK", "acme-h100-1g10gb-2": "H100_1G10GB",
		"acme-h100x8-0": "H100x8", "acme-cpu-0": "CPU_BK", "acme-l4x4-0": "L4x4", "nvidia-cpu-0": "CPU_BK",
	} {
		if g, err := on.LookupQueue(queue); err != nil || g.Name != want || g.Queue != queue {
			t.Errorf("LookupQueue(%s) = %s on %s, %v, want %s on that queue", queue, g.Name, g.Queue, err, want)
		}
	}
	for queue, want := range map[string]string{
		"h100-0": "unknown queue", "-h100-0": "unknown queue", "nvidia-h10-0": "unknown queue", "nvidia-h100-x": "unknown queue",
		"nvidia-h100-0 ": "unknown queue", "nvidia-$h100-0": "unknown queue", "": "unknown queue", strings.Repeat("x", 80) + "-h100-0": "unknown queue",
		"amd-h100-0": "amd makes no GPU for H100_BK, whose maker is nvidia", "nvidia-mi300-0": "nvidia makes no GPU for MI300_BK",
	} {
		if g, err := on.LookupQueue(queue); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("LookupQueue(%.20q) = %s, %v, want %q", queue, g.Name, err, want)
		}
	}
	if _, err := Fleet.LookupQueue("acme-a100-0"); !errors.As(err, new(*OffError)) {
		t.Errorf("LookupQueue(acme-a100-0) = %v, want the row to be switched off", err)
	}
}

func TestQueuesOfABuild(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want string // queue, or the error
	}{
		{map[string]string{"GPU_QUEUE": "nvidia-h100-0"}, "nvidia-h100-0"},
		{map[string]string{"KERNELBOT_GPU": "H100_BK", "GPU_QUEUE": "nvidia-h100-0"}, "nvidia-h100-0"},
		{map[string]string{"KERNELBOT_GPU": "H100_BK", "KERNELBOT_QUEUE": "h100"}, "h100"},
		{map[string]string{"KERNELBOT_QUEUE": "nvidia-h100-0", "GPU_QUEUE": "nvidia-h100-0"}, "nvidia-h100-0"},
		{map[string]string{"KERNELBOT_QUEUE": "h100", "GPU_QUEUE": "nvidia-h100-0"}, "want one queue"},
		{map[string]string{"KERNELBOT_GPU": "B200_BK", "GPU_QUEUE": "nvidia-h100-0"}, "KERNELBOT_GPU says B200_BK, but"},
	} {
		r, err := ask(Choice{}, tt.env)
		got := fmt.Sprint(err)
		if err == nil {
			got = r.GPUs[0].Queue
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%v: %s, want %s", tt.env, got, tt.want)
		}
	}
}

// A build whose launcher gives no run id gets one, in each job its own.
func TestDerivedRunID(t *testing.T) {
	p, err := Find("evaluate")
	if err != nil {
		t.Fatal(err)
	}
	r, err := ask(Choice{}, map[string]string{"GPU_QUEUE": "h100", "BUILDKITE_BUILD_ID": "0190-b"})
	if err != nil {
		t.Fatal(err)
	}
	steps, err := p.Steps(r)
	if err != nil || !slices.Contains(steps[0].Env, Var{"KERNELBOT_RUN_ID", "build-0190-b.H100_BK"}) {
		t.Errorf("%v, %v: want a run id of the build's", steps, err)
	}
	r, err = ask(Choice{}, map[string]string{"GPU_QUEUE": "h100", "BUILDKITE_BUILD_ID": "0190-b", "KERNELBOT_RUN_ID": "sub-1"})
	if steps, err2 := p.Steps(r); err != nil || err2 != nil || slices.ContainsFunc(steps[0].Env, func(v Var) bool { return v.Name == "KERNELBOT_RUN_ID" }) {
		t.Errorf("%v, %v, %v: want the launcher's own", steps, err, err2)
	}
	r, err = ask(Choice{}, map[string]string{"GPU_QUEUE": "h100", "BUILDKITE_BUILD_ID": "$(reboot)"})
	if _, err2 := p.Steps(r); err != nil || err2 == nil {
		t.Errorf("a build's id that is none: %v, %v, want an error", err, err2)
	}
}

func TestUnknownNamesTheNearest(t *testing.T) {
	for got, want := range map[string]string{"H100": "H100_BK", "B20_BK": "B200_BK", "mi300x": "MI300x8", "mi300_bl": "MI300_BK", "l40": "L40S_BK", "": "", "FOO": ""} {
		_, err := Fleet.Lookup(got)
		if u := new(UnknownError); !errors.As(err, &u) || u.Nearest != want {
			t.Errorf("Lookup(%q) = %v, want %s as the nearest", got, err, want)
		}
	}
}

func TestCheckImage(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0f", 32)
	for ref, ok := range map[string]bool{
		CUDAImage: true, ROCmImage: true,
		"kb" + digest: true, "ghcr.io/a/kb:1" + digest: true, "localhost:5000/kb:v1": true,
		"": false, "ghcr.io/a/kb": false, "localhost:5000/kb": false, "ghcr.io/a/kb:latest": false,
		"ghcr.io/a/kb:$TAG": false, "ghcr.io/a/kb:1 --privileged": false, "-v:1": false,
		"kb@sha256:12": false, "kb:1\n": false,
	} {
		if err := CheckImage(ref); (err == nil) != ok {
			t.Errorf("CheckImage(%q) = %v, want ok %v", ref, err, ok)
		}
	}
}
