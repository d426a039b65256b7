package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/schema/text"
)

// drainCmd keeps slots from taking jobs.
type drainCmd struct {
	Slots   []string      `arg:"" optional:"" name:"slot"`
	Reason  string        `default:"drained by hand" placeholder:"TEXT"`
	Timeout time.Duration `default:"0" placeholder:"DURATION"`
	NoWait  bool
}

func (c *drainCmd) Run(ctx context.Context, env *cli.Env) error {
	slots, err := picked(c.Slots)
	if err != nil {
		return err
	}
	if c.Timeout < 0 {
		return cli.Usagef("--timeout: got %v, want 0 (as long as the last job takes) or more", c.Timeout)
	}
	for _, s := range slots {
		if err := pause(s, c.Reason); err != nil {
			return err
		}
	}
	// All at once: each stop waits for a job of its own.
	args := []string{"stop"}
	if c.NoWait {
		args = append(args, "--no-block")
	}
	for _, s := range slots {
		args = append(args, s.Unit())
	}
	stopping, cancel := ctx, context.CancelFunc(func() {})
	if c.Timeout > 0 {
		stopping, cancel = context.WithTimeout(ctx, c.Timeout)
	}
	defer cancel()
	if _, err := system.Run(stopping, "systemctl", args...); err != nil {
		if ctx.Err() == nil && stopping.Err() != nil {
			return fmt.Errorf("after %v jobs still run on %s; they end, and no further one starts: kbnode status", c.Timeout, strings.Join(busy(ctx, slots), ", "))
		}
		return err
	}
	for _, s := range slots {
		state := "takes no jobs"
		if c.NoWait {
			state = "takes no further jobs; the one that runs ends"
		}
		fmt.Fprintf(env.Stdout, "%s: %s (%s)\n", s.Name, state, text.Line(c.Reason, 200))
	}
	return nil
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

// resumeCmd lets slots take jobs again.
type resumeCmd struct {
	Slots []string `arg:"" optional:"" name:"slot"`
}

func (c *resumeCmd) Run(ctx context.Context, env *cli.Env) error {
	slots, err := picked(c.Slots)
	if err != nil {
		return err
	}
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
		fmt.Fprintf(env.Stdout, "%s: takes jobs\n", s.Name)
	}
	return errors.Join(failed...)
}

// picked reads the config and returns the slots of these names, all for none.
func picked(names []string) ([]*node.Slot, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("want root: sudo kbnode")
	}
	config, err := node.ReadConfig("/")
	if err != nil {
		return nil, err
	}
	slots, err := config.Pick(names)
	if err != nil {
		return nil, cli.Usagef("%w", err)
	}
	return slots, nil
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

// unfit takes a slot out of use because of its devices. The agent ends the job in
// hand and takes no other.
func unfit(ctx context.Context, s *node.Slot, why error) error {
	paused := pause(s, "health: "+why.Error())
	// Also where no reason could be written: a full disk must not feed a broken GPU.
	_, err := system.Run(ctx, "systemctl", "stop", "--no-block", s.Unit())
	return errors.Join(paused, err)
}

// watchCmd looks after the slots between jobs; a timer starts it each minute.
type watchCmd struct {
	TextFile string `placeholder:"FILE"`
}

func (c *watchCmd) Run(ctx context.Context, env *cli.Env) error {
	config, err := node.ReadConfig("/")
	if err != nil {
		return err
	}
	m := doctor.Host()
	// At once: a driver that hangs keeps each of them for its whole limit.
	why := make([]error, len(config.Slots))
	var looking sync.WaitGroup
	stop := []string{"stop", "--no-block"}
	for i := range config.Slots {
		s := &config.Slots[i]
		if _, err := os.Stat(s.Paused()); err == nil {
			stop = append(stop, s.Unit())
			continue
		}
		looking.Go(func() {
			why[i] = broken(ctx, lookAgain, func(ctx context.Context) error { return doctor.Fit(ctx, m, s) })
		})
	}
	var failed []error
	if len(stop) > 2 { // who paused a slot may have been ended before it stopped the agent; now, before somebody resumes it
		_, err := system.Run(ctx, "systemctl", stop...)
		failed = append(failed, err)
	}
	looking.Wait()
	for i, err := range why {
		if s := &config.Slots[i]; err != nil {
			fmt.Fprintf(env.Stderr, "kbnode: %s takes no further jobs: %v\n", s.Name, err)
			failed = append(failed, unfit(ctx, s, err))
		}
	}
	if c.TextFile != "" && ctx.Err() == nil {
		failed = append(failed, writeMetrics(ctx, m, config, c.TextFile))
	}
	return errors.Join(failed...)
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
