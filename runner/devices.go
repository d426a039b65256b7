package runner

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// probeLimit bounds a question to a driver.
const probeLimit = 20 * time.Second

// probeDevices finds the machine's accelerators and fills in what reports show
// of them. The watch is never nil, and must be closed.
func probeDevices(ctx context.Context, job Job, env []string, result *schema.Result) *device.Watch {
	m := job.Devices
	m.Environ = env
	if m.Limit == 0 {
		m.Limit = probeLimit
	}
	if path, err := LookPath("nvidia-smi", env); err == nil && m.SMI == "" {
		m.SMI = path
	}
	// The probing process must not become a child of this one again: see
	// device.Start.
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) // cannot fail
	m.Vendor, m.OwnUser = job.Requirements.Vendor, sandbox.OwnUser()
	start := time.Now()
	watch := device.Probe(ctx, m)
	result.Timing.Probe = time.Since(start).Seconds()
	result.Device = watch.Report()
	seen := watch.Visible()
	if len(seen) > 0 && result.Device.Vendor != device.TPU {
		result.System.GPU, result.System.DeviceCount = seen[0].Name, len(seen)
		result.System.Runtime = map[string]string{device.NVIDIA: plan.RuntimeCUDA, device.AMD: plan.RuntimeROCm}[result.Device.Vendor]
	}
	return watch
}

// admit refuses a machine whose devices must not be used, or are not there.
func admit(ctx context.Context, job Job, watch *device.Watch, seen []schema.Device) error {
	if err := stopped(ctx); err != nil {
		return err
	}
	outcome, text := job.Requirements.Check(watch.Report(), seen)
	if outcome == schema.OutcomeGPUBusy {
		watch.Settle(ctx)
		if err := stopped(ctx); err != nil {
			return err
		}
		outcome, text = job.Requirements.Check(watch.Report(), watch.Visible())
	}
	if outcome != "" {
		return outcomef(outcome, "%s", text)
	}
	if job.Payload.MultiGPU && len(seen) == 0 {
		return outcomef(schema.OutcomeGPUMissing, "the task is for several GPUs, and the machine shows none")
	}
	if job.Payload.MultiGPU || job.Requirements.Named() {
		if text := watch.Closed(seen); text != "" {
			return outcomef(schema.OutcomeGPUMissing, "%s", text)
		}
	}
	return nil
}

// The time of the last question. A busy machine gets the first of the two; once
// the job's own is over, by its deadline or a signal, little is left.
const (
	afterLimit = time.Minute
	afterOver  = 5 * time.Second
)

var errJobOver = errors.New("the job's time is over")

// probeAfter asks the devices once more, when every process of the submission
// is gone.
func (e *evaluation) probeAfter(ctx context.Context) {
	after, stop := context.WithTimeout(context.WithoutCancel(ctx), afterLimit)
	defer stop()
	after, giveUp := context.WithCancelCause(after)
	defer giveUp(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(afterOver, func() { giveUp(errJobOver) })
	})()
	others := e.watch.After(after)
	if e.job.Payload.Mode != schema.ModeTest && !e.job.Requirements.Shared {
		e.result.Ambiguous = append(e.result.Ambiguous, others...)
	}
}
