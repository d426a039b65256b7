package drain

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/system"
)

// AwaitDevices waits for at most limit until the drivers have made the slots' device
// nodes, then makes systemd read the slices again. A slice that starts before drops
// what it was to allow, in silence.
func AwaitDevices(ctx context.Context, config *node.Config, limit time.Duration, log func(format string, args ...any)) error {
	all, err := config.Pick(nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for asked := false; ; asked = true {
		missing := missingNodes(config)
		if len(missing) == 0 {
			break
		}
		if !asked {
			askForNodes(ctx, config)
			continue
		}
		select {
		case <-ctx.Done():
			// The other slots can work: their agents' preflight tells them apart.
			log("after %v there is no %s", limit, strings.Join(missing, ", no "))
			return reloadSlices(context.WithoutCancel(ctx), all)
		case <-time.After(200 * time.Millisecond):
		}
	}
	return reloadSlices(ctx, all)
}

// missingNodes are the slots' device nodes that are not there.
func missingNodes(config *node.Config) []string {
	var missing []string
	for _, s := range config.Slots {
		for _, d := range s.Devices {
			for _, n := range d.Nodes {
				if info, err := os.Stat(n); (err != nil || info.Mode()&fs.ModeCharDevice == 0) && !slices.Contains(missing, n) {
					missing = append(missing, n)
				}
			}
		}
	}
	return missing
}

// askForNodes has NVIDIA's driver make its nodes: they come with the first use,
// not with the module.
func askForNodes(ctx context.Context, config *node.Config) {
	if !slices.ContainsFunc(config.Slots, func(s node.Slot) bool {
		return slices.ContainsFunc(s.Devices, func(d node.Device) bool { return d.Vendor == "nvidia" })
	}) {
		return
	}
	for _, command := range [][]string{{"nvidia-modprobe", "-c0", "-u"}, {"nvidia-smi", "-L"}} {
		_, _ = system.Run(ctx, command[0], command[1:]...) // what is missing afterwards is said
	}
}

// reloadSlices makes systemd read DeviceAllow= again where a slice was there
// before its nodes, or while one of them was away.
func reloadSlices(ctx context.Context, slots []*node.Slot) error {
	var errs []error
	for _, s := range slots {
		out, err := system.Run(ctx, "systemctl", "show", "--property=ActiveState", "--value", s.Slice())
		if err != nil {
			errs = append(errs, err)
		}
		if strings.TrimSpace(string(out)) == "active" {
			_, err := system.Run(ctx, "systemctl", "daemon-reload")
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}
