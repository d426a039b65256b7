package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// versions names what judges and what is judged. The seed is in no digest: a
// short one could be found by trying.
func versions(job Job, env []string) *schema.Versions {
	open := *job.Payload
	open.Seed = nil
	v := &schema.Versions{Runner: job.Version, Image: job.Image, Payload: digest(open.JSON()), Files: []schema.FileDigest{}}
	if path, err := lookPath("python3", env); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			v.Python = filepath.Base(real)
		}
	}
	for _, f := range slices.Concat(job.Payload.Sources, job.Payload.Headers) {
		d := schema.FileDigest{Name: f.Name, SHA256: digest(f.Text)}
		v.Files = append(v.Files, d)
		if f.Name == warmupFile || f.Name == "submission.cu" {
			v.Submission = d.SHA256
		}
	}
	return v
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// probeLimit bounds a question to a driver.
const probeLimit = 20 * time.Second

// look finds the machine's accelerators and fills in what reports show of them.
// The watch is never nil, and must be closed.
func look(ctx context.Context, job Job, env []string, result *schema.Result) *device.Watch {
	m := job.Devices
	m.Environ = env
	if m.Limit == 0 {
		m.Limit = probeLimit
	}
	if path, err := lookPath("nvidia-smi", env); err == nil && m.SMI == "" {
		m.SMI = path
	}
	// The probing process must not become a child of this one again: see
	// device.Start.
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) // cannot fail
	m.Vendor, m.OwnUser = job.Demand.Vendor, sandbox.OwnUser()
	start := time.Now()
	watch := device.Look(ctx, m)
	result.Timing.Probe = time.Since(start).Seconds()
	result.Device = watch.Report()
	seen := watch.Visible()
	if len(seen) > 0 && result.Device.Vendor != device.TPU {
		result.System.GPU, result.System.DeviceCount = seen[0].Name, len(seen)
		result.System.Runtime = runtimeOf(result.Device.Vendor)
	}
	return watch
}

// admit refuses a machine whose devices must not be used, or are not there.
func admit(ctx context.Context, job Job, watch *device.Watch, seen []schema.Device) error {
	if err := stopped(ctx); err != nil {
		return err
	}
	outcome, text := job.Demand.Check(watch.Report(), seen)
	if outcome == schema.OutcomeGPUBusy {
		watch.Settle(ctx)
		if err := stopped(ctx); err != nil {
			return err
		}
		outcome, text = job.Demand.Check(watch.Report(), watch.Visible())
	}
	if outcome != "" {
		return endf(outcome, "%s", text)
	}
	if job.Payload.MultiGPU && len(seen) == 0 {
		return endf(schema.OutcomeGPUMissing, "the task is for several GPUs, and the machine shows none")
	}
	if job.Payload.MultiGPU || job.Demand.Named() {
		if text := watch.Closed(seen); text != "" {
			return endf(schema.OutcomeGPUMissing, "%s", text)
		}
	}
	return nil
}

// Runtimes as Kernelbot names them.
const (
	runtimeCUDA = "CUDA"
	runtimeROCm = "ROCm"
)

func runtimeOf(vendor string) string {
	switch vendor {
	case device.NVIDIA:
		return runtimeCUDA
	case device.AMD:
		return runtimeROCm
	}
	return ""
}

// after looks at the devices once more, when every process of the submission
// is gone.
func (e *evaluation) after(ctx context.Context, result *schema.Result) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	others := e.watch.After(ctx)
	if e.p.Mode != schema.ModeTest && !e.job.Demand.Shared {
		result.Ambiguous = append(result.Ambiguous, others...)
	}
}

// write puts files in place and counts the time.
func (ph *phase) write(files schema.Files) error {
	start := time.Now()
	err := writeFiles(ph.work, files)
	ph.timing.Write += time.Since(start).Seconds()
	return err
}
