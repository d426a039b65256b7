package drain

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/system"
)

// Watch takes the slots out of use whose devices are not in order, and stops the
// agents of those that are paused.
func Watch(ctx context.Context, config *node.Config, log func(format string, args ...any)) error {
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
