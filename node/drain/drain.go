// Package drain takes slots out of use and back: by hand, or because a device is
// not fit for a job. A slot that is out of use has a file in node.PausedDir, so
// that it stays so over reboots.
package drain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Stop pauses slots with a reason and stops their agents, all at once: each of them
// ends its job first. It waits for the jobs if wait is set, for at most limit if
// that is not 0; they go on afterwards.
func Stop(ctx context.Context, slots []*node.Slot, reason string, wait bool, limit time.Duration) error {
	for _, s := range slots {
		if err := pause(s, reason); err != nil {
			return err
		}
	}
	args := []string{"stop"}
	if !wait {
		args = append(args, "--no-block")
	}
	for _, s := range slots {
		args = append(args, s.Unit())
	}
	stopping, cancel := ctx, context.CancelFunc(func() {})
	if limit > 0 {
		stopping, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	_, err := system.Run(stopping, "systemctl", args...)
	if err != nil && ctx.Err() == nil && stopping.Err() != nil {
		return fmt.Errorf("after %v jobs still run on %s; they end, and no further one starts: kbnode status", limit, strings.Join(busy(ctx, slots), ", "))
	}
	return err
}

// busy names the slots whose agents still run.
func busy(ctx context.Context, slots []*node.Slot) []string {
	var names []string
	for _, s := range slots {
		if out, err := system.Run(context.WithoutCancel(ctx), "systemctl", "show", "--property=ActiveState", "--value", s.Unit()); err != nil || strings.TrimSpace(string(out)) != "inactive" {
			names = append(names, s.Name)
		}
	}
	return names
}

// Resume has slots take jobs again. It calls resumed for each slot whose agent
// started.
func Resume(ctx context.Context, slots []*node.Slot, resumed func(*node.Slot)) error {
	// The watch may have paused a slot because a device's node was away.
	if err := reloadSlices(ctx, slots); err != nil {
		return err
	}
	var failed []error
	for _, s := range slots {
		if err := os.Remove(s.Paused()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if _, err := system.Run(ctx, "systemctl", "reset-failed", s.Unit()); err != nil && !strings.Contains(err.Error(), "not loaded") {
			return err
		}
		// The unit's own preflight decides whether the agent may start.
		if _, err := system.Run(ctx, "systemctl", "start", s.Unit()); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w; kbnode doctor --slot %s or journalctl -u %s says why", s.Name, err, s.Name, s.Unit()))
			continue
		}
		resumed(s)
	}
	return errors.Join(failed...)
}

// pause keeps a slot's agent from starting, with the reason. What stands there
// already is kept: the first reason is the one to look at.
func pause(s *node.Slot, reason string) error {
	if err := os.MkdirAll(filepath.Dir(s.Paused()), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(s.Paused(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text.Line(reason, 300) + "\n")
	return errors.Join(err, f.Close())
}

// StartAgents starts the agents of slots with containers, which wait for their first
// image. An agent that is paused stays so: its unit's condition sees to it.
func StartAgents(ctx context.Context) error {
	config, err := node.ReadConfig("/")
	if err != nil {
		return err
	}
	args := []string{"start"}
	for i := range config.Slots {
		if config.Slots[i].Platform == "docker" {
			args = append(args, config.Slots[i].Unit())
		}
	}
	if _, err := system.Run(ctx, "systemctl", args...); err != nil {
		return fmt.Errorf("the image is there, and agents do not start: %w; kbnode doctor says why", err)
	}
	return nil
}

// Retire takes a slot out of use because of its devices. The agent ends the job in
// hand and takes no other.
func Retire(ctx context.Context, s *node.Slot, why error) error {
	paused := pause(s, "health: "+why.Error())
	// Also where no reason could be written: a full disk must not feed a broken GPU.
	_, err := system.Run(ctx, "systemctl", "stop", "--no-block", s.Unit())
	return errors.Join(paused, err)
}
