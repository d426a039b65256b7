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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/limits"
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
	verb := []string{"stop"}
	if !wait {
		verb = append(verb, "--no-block")
	}
	stopping, cancel := ctx, context.CancelFunc(func() {})
	if limit > 0 {
		stopping, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	err := Agents(stopping, slots, verb...)
	if err != nil && ctx.Err() == nil && stopping.Err() != nil {
		return fmt.Errorf("after %v jobs still run on %s; they end, and no further one starts: kbnode status", limit, strings.Join(busy(ctx, slots), ", "))
	}
	return err
}

// Agents does something with the agents of slots, at once: "stop", "--no-block".
func Agents(ctx context.Context, slots []*node.Slot, verb ...string) error {
	for _, s := range slots {
		verb = append(verb, s.Unit())
	}
	_, err := system.Run(ctx, "systemctl", verb...)
	return err
}

// busy names the slots whose agents still run.
func busy(ctx context.Context, slots []*node.Slot) []string {
	var names []string
	for _, s := range slots {
		if state, err := activeState(context.WithoutCancel(ctx), s.Unit()); err != nil || state != "inactive" {
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
	var slots []*node.Slot
	for _, s := range config.Slots {
		if s.Platform == "docker" {
			slots = append(slots, s)
		}
	}
	if err := Agents(ctx, slots, "start"); err != nil {
		return fmt.Errorf("the image is there, and agents do not start: %w; kbnode doctor says why", err)
	}
	return nil
}

// Retire takes a slot out of use because of its devices. The agent ends the job in
// hand and takes no other.
func Retire(ctx context.Context, s *node.Slot, why error) error {
	paused := pause(s, "health: "+why.Error())
	// Also where no reason could be written: a full disk must not feed a broken GPU.
	return errors.Join(paused, Agents(ctx, []*node.Slot{s}, "stop", "--no-block"))
}

// Watch takes the slots out of use whose devices are not in order, and stops the
// agents of those that are paused.
func Watch(ctx context.Context, config *node.Config, log func(format string, args ...any)) error {
	m := doctor.Host()
	// At once: a driver that hangs keeps each of them for its whole limit.
	why := make([]error, len(config.Slots))
	var looking sync.WaitGroup
	var paused []*node.Slot
	for i, s := range config.Slots {
		if _, err := os.Stat(s.Paused()); err == nil {
			paused = append(paused, s)
			continue
		}
		looking.Go(func() {
			why[i] = broken(ctx, lookAgain, func(ctx context.Context) error { return doctor.Fit(ctx, m, s) })
		})
	}
	var failed []error
	if len(paused) > 0 { // who paused a slot may have been ended before it stopped the agent; now, before somebody resumes it
		failed = append(failed, Agents(ctx, paused, "stop", "--no-block"))
	}
	looking.Wait()
	for i, err := range why {
		if s := config.Slots[i]; err != nil {
			log("%s takes no further jobs: %v", s.Name, err)
			failed = append(failed, Retire(ctx, s, err))
		}
	}
	return errors.Join(failed...)
}

// CheckDevices looks after a slot's devices between two jobs. A slot that is not fit
// is taken out of use, and the error says why.
func CheckDevices(ctx context.Context, s *node.Slot) error {
	if len(s.Devices) == 0 {
		return nil
	}
	err := broken(ctx, lookAgain, func(ctx context.Context) error { return doctor.Fit(ctx, doctor.Host(), s) })
	if err == nil {
		return nil
	}
	return errors.Join(err, Retire(ctx, s, err))
}

// lookAgain is the time between two looks at devices that are not in order.
const lookAgain = 3 * time.Second

// broken is why devices are not fit for a job, when a second look says so as well.
// One driver's answer that did not come takes no slot out of use for good. Nor does
// the end of this process: systemd ends the programs that it asks together with it.
func broken(ctx context.Context, again time.Duration, fit func(context.Context) error) error {
	if fit(ctx) == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(again):
	}
	if err := fit(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// AwaitDevices waits for at most limit until the drivers have made the slots' device
// nodes, then makes systemd read the slices again. A slice that starts before drops
// what it was to allow, in silence.
func AwaitDevices(ctx context.Context, config *node.Config, limit time.Duration, log func(format string, args ...any)) error {
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
			return reloadSlices(context.WithoutCancel(ctx), config.Slots)
		case <-time.After(200 * time.Millisecond):
		}
	}
	return reloadSlices(ctx, config.Slots)
}

// missingNodes are the slots' device nodes that are not there.
func missingNodes(config *node.Config) []string {
	var missing []string
	for _, s := range config.Slots {
		for _, n := range limits.Nodes(s) {
			if info, err := os.Stat(n); (err != nil || info.Mode()&fs.ModeCharDevice == 0) && !slices.Contains(missing, n) {
				missing = append(missing, n)
			}
		}
	}
	return missing
}

// askForNodes has NVIDIA's driver make its nodes: they come with the first use,
// not with the module.
func askForNodes(ctx context.Context, config *node.Config) {
	if !config.HasVendor("nvidia") {
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
		state, err := activeState(ctx, s.Slice())
		errs = append(errs, err)
		if state == "active" {
			_, err := system.Run(ctx, "systemctl", "daemon-reload")
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

func activeState(ctx context.Context, unit string) (string, error) {
	out, err := system.Run(ctx, "systemctl", "show", "--property=ActiveState", "--value", unit)
	return strings.TrimSpace(string(out)), err
}
