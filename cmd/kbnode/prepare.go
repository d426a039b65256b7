package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/system"
)

// prepareCmd waits until the drivers have made the slots' device nodes. A slice
// that starts before drops what it was to allow, in silence.
type prepareCmd struct {
	Wait time.Duration `default:"2m"`
}

func (c *prepareCmd) Run(ctx context.Context, env *cli.Env) error {
	config, err := node.ReadConfig("/")
	if err != nil {
		return err
	}
	all, err := config.Pick(nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
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
			fmt.Fprintf(env.Stderr, "kbnode: after %v there is no %s\n", c.Wait, strings.Join(missing, ", no "))
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
