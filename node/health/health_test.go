package health

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema"
)

// A device is known by what identifies it: a UUID of NVIDIA's, else its place.
func TestDeviceIsFoundByItsIdentity(t *testing.T) {
	nvidia := &schema.DeviceReport{Source: device.SourceSMI, Devices: []schema.Device{{UUID: "GPU-a", PCI: "0000:01:00.0"}, {UUID: "GPU-b", PCI: "0000:02:00.0"}}}
	// Partitions of one card have one UUID; their render nodes tell them apart.
	amd := &schema.DeviceReport{Source: device.SourceSysfs, Devices: []schema.Device{
		{UUID: "GPU-x", PCI: "0000:05:00.0", Node: "/dev/dri/renderD128"}, {UUID: "GPU-x", PCI: "0000:05:00.1", Node: "/dev/dri/renderD129"},
	}}
	for name, tt := range map[string]struct {
		report *schema.DeviceReport
		want   node.Device
		found  bool
		index  int
	}{
		"by UUID":               {nvidia, node.Device{UUID: "GPU-b"}, true, 1},
		"in other case":         {nvidia, node.Device{UUID: "gpu-B"}, true, 1},
		"UUID that is gone":     {nvidia, node.Device{UUID: "GPU-c", PCI: "0000:01:00.0"}, false, 0}, // another card in its place
		"partition by address":  {amd, node.Device{PCI: "0000:05:00.1"}, true, 1},
		"partition by its node": {amd, node.Device{Nodes: []string{"/dev/kfd", "/dev/dri/renderD129"}}, true, 1},
		"MIG instance that the tool does not list": {nvidia, node.Device{UUID: "MIG-a"}, true, -1},
		"MIG instance that NVML does not list": {&schema.DeviceReport{Source: device.SourceNVML, Devices: nvidia.Devices},
			node.Device{UUID: "MIG-a"}, false, 0},
	} {
		got, ok := find(tt.report, tt.want)
		if ok != tt.found {
			t.Errorf("%s: found %v, want %v", name, ok, tt.found)
		}
		if ok && tt.index >= 0 && (got.PCI != tt.report.Devices[tt.index].PCI || got.Node != tt.report.Devices[tt.index].Node) {
			t.Errorf("%s: got %+v, want device %d", name, got, tt.index)
		}
	}
}

func TestSlotWithoutDevicesIsFit(t *testing.T) {
	if err := Check(context.Background(), &node.Slot{Name: "cpu0"}, device.Machine{Root: t.TempDir()}); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestFaultsHaveCodes(t *testing.T) {
	root := t.TempDir()
	slot := &node.Slot{Name: "gpu0", Devices: []node.Device{{Vendor: "nvidia", UUID: "GPU-a", Nodes: []string{"/dev/nvidia0"}}}}
	want := func(code string, err error) {
		t.Helper()
		var f *Fault
		if !errors.As(err, &f) || f.Code != code {
			t.Errorf("got %v, want %s", err, code)
		}
	}
	want(CodeNodeMissing, Check(context.Background(), slot, device.Machine{Root: root}))
	if err := os.MkdirAll(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nvidia0", "nvidia1"} {
		if err := os.WriteFile(filepath.Join(root, "dev", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want(CodeDriver, Check(context.Background(), slot, device.Machine{Root: root}))
	other := node.Slot{Name: "gpu1", Devices: []node.Device{{Vendor: "nvidia", Nodes: []string{"/dev/nvidia1", "/dev/nvidiactl"}}}}
	want(CodeOthersOpened, Confined(root, slot, []*node.Slot{slot, &other}))
	if err := Confined(root, slot, []*node.Slot{slot}); err != nil {
		t.Errorf("with no other slot: %v", err)
	}
}
