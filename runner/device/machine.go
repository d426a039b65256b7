package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// A Machine says where to look.
type Machine struct {
	Root    string   // of dev, proc and sys; "" means "/"
	Probe   []string // a program whose work is [Detach] of [Serve]; none: NVML is not asked
	SMI     string   // nvidia-smi, "" when there is none
	Environ []string // of those two
	Limit   time.Duration

	// OneShot asks and does not stay: no process is left to sample from. For a
	// caller that is process 1, whose orphans come back to it as children.
	OneShot bool
}

// Watch has looked at a machine's devices and can go on watching them.
type Watch struct {
	machine Machine
	report  *schema.DeviceReport
	probe   *Probe // NVIDIA, by NVML
	kfd     *kfdReader
	loop    *sampler
}

// Look asks what accelerators there are. A driver that does not work is in the
// report's faults, and the report is never nil.
//
// The caller must end it with [Watch.Close]; no child of this process is left
// by it, and a machine without accelerators costs a few reads of directories.
func Look(ctx context.Context, m Machine) *Watch {
	if m.Root == "" {
		m.Root = "/"
	}
	w := &Watch{machine: m}
	kfd := &kfdReader{m.Root}
	switch {
	case m.nvidia():
		w.nvidia(ctx)
	case len(kfd.nodes()) > 0:
		w.kfd, w.report = kfd, kfd.report()
	default:
		w.report = tpuReport(m.Root)
		if len(w.report.Devices) == 0 {
			w.report = &schema.DeviceReport{Source: SourceNone}
		}
	}
	return w
}

// Report is what was found first, and what came to it since.
func (w *Watch) Report() *schema.DeviceReport { return w.report }

// nvidia tells whether NVIDIA's driver, or its tool, shows itself here.
func (m Machine) nvidia() bool { return m.SMI != "" || m.nvidiaKernel() }

func (m Machine) nvidiaKernel() bool {
	for _, name := range []string{"dev/nvidiactl", "proc/driver/nvidia/version"} {
		if _, err := os.Stat(filepath.Join(m.Root, name)); err == nil {
			return true
		}
	}
	return false
}

// nvidia asks NVML, or else nvidia-smi. A driver that is there and answers
// neither is the report's source with faults and no devices; where nothing can
// be asked, the source is SourceNone.
func (w *Watch) nvidia(ctx context.Context) {
	m := w.machine
	source, faults := SourceNone, []string(nil)
	add := func(from string, err error) {
		if m.nvidiaKernel() {
			source = from
		}
		faults = append(faults, schema.Clean(err.Error()))
	}
	if len(m.Probe) > 0 {
		report, err := w.ask(ctx)
		if err == nil {
			w.report = report
			return
		}
		if !errors.Is(err, ErrNoDriver) {
			add(SourceNVML, err)
		}
	}
	if m.SMI != "" {
		report, err := readSMI(ctx, m.SMI, m.Environ, m.Limit)
		if err == nil {
			report.Faults = append(report.Faults, faults...)
			w.report = report
			return
		}
		add(SourceSMI, err)
	}
	if len(faults) == 0 {
		faults = []string{"NVIDIA's driver cannot be asked: there is neither kbrun-nvml nor nvidia-smi"}
	}
	w.report = &schema.DeviceReport{Source: source, Vendor: NVIDIA, Faults: faults}
}

// ask starts the probing process and keeps it when it works.
func (w *Watch) ask(ctx context.Context) (*schema.DeviceReport, error) {
	probe, err := Start(ctx, w.machine.Probe, w.machine.Environ)
	if err != nil {
		return nil, err
	}
	report, err := probe.Report(ctx, w.machine.Limit)
	if err != nil {
		probe.Close()
		return nil, err
	}
	if w.machine.OneShot {
		probe.Close()
		report.Faults = append(report.Faults, "not sampled: the runner is process 1 of its container")
		return report, nil
	}
	w.probe = probe
	return report, nil
}

// Begin starts sampling the devices, where that can be done.
func (w *Watch) Begin() {
	switch {
	case w.probe != nil:
		w.probe.StartSampling()
	case w.kfd != nil:
		w.loop = startSampler(w.kfd, SampleInterval)
	}
}

// End stops sampling, adds what was seen to the report under that phase, and
// returns what disturbed the phase, one line each.
func (w *Watch) End(ctx context.Context, phase string) []string {
	var seen []schema.Sampling
	var err error
	switch {
	case w.probe != nil:
		seen, err = w.probe.StopSampling(ctx, w.machine.Limit)
	case w.loop != nil:
		seen, w.loop = w.loop.stop(), nil
	}
	var out []string
	if err != nil {
		out = append(out, fmt.Sprintf("%s: the device could not be watched: %v", phase, err))
	}
	for i := range seen {
		seen[i].Phase = phase
		out = append(out, w.disturbed(seen[i])...)
	}
	w.report.Sampling = append(w.report.Sampling, seen...)
	return out
}

// disturbed says what in a phase's samples was not the program's own doing.
func (w *Watch) disturbed(s schema.Sampling) []string {
	var out []string
	for _, c := range s.Throttle {
		if Disturbs(c.Reason) {
			out = append(out, fmt.Sprintf("%s: device %d was slowed down (%s) in %d of %d samples", s.Phase, s.Index, c.Reason, c.Samples, s.Samples))
		}
	}
	return out
}

// After asks once more and enters who is on the devices now that every process
// of the submission is gone. It returns what may have disturbed the job. A
// driver lists a killed process for a moment longer, so it is asked until
// nobody is there or settleTime is over.
func (w *Watch) After(ctx context.Context) []string {
	deadline := time.Now().Add(settleTime)
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		now := w.again(ctx)
		if now == nil {
			return nil
		}
		others := w.others(now)
		if len(others) == 0 || ctx.Err() != nil || time.Now().Add(pause).After(deadline) {
			return others
		}
		time.Sleep(pause)
	}
}

const settleTime = 2 * time.Second

func (w *Watch) others(now *schema.DeviceReport) []string {
	var out []string
	for _, d := range now.Devices {
		for i := range w.report.Devices {
			if w.report.Devices[i].Index != d.Index {
				continue
			}
			w.report.Devices[i].ProcessAfter = d.ProcessBefore
			for _, h := range d.ProcessBefore {
				out = append(out, strings.TrimSpace(fmt.Sprintf("device %d was also used by process %d %s", d.Index, h.PID, h.Name)))
			}
		}
	}
	return out
}

func (w *Watch) again(ctx context.Context) *schema.DeviceReport {
	var report *schema.DeviceReport
	var err error
	switch {
	case w.probe != nil:
		report, err = w.probe.Report(ctx, w.machine.Limit)
	case w.kfd != nil:
		report = w.kfd.report()
	case w.machine.OneShot && w.report.Source == SourceNVML && len(w.report.Devices) > 0:
		report, err = w.ask(ctx)
	case w.report.Source == SourceSMI:
		report, err = readSMI(ctx, w.machine.SMI, w.machine.Environ, w.machine.Limit)
	}
	if err != nil {
		w.report.Faults = append(w.report.Faults, "afterwards: "+schema.Clean(err.Error()))
	}
	return report
}

// Close ends what still watches.
func (w *Watch) Close() {
	if w.loop != nil {
		w.loop.stop()
		w.loop = nil
	}
	if w.probe != nil {
		w.probe.Close()
	}
}

// SampleInterval is the time between two samples of a device. Asking costs the
// driver about a millisecond.
const SampleInterval = 200 * time.Millisecond

// A sampler reads files while a phase runs.
type sampler struct {
	quit chan struct{}
	done chan []schema.Sampling
}

func startSampler(r reader, interval time.Duration) *sampler {
	s := &sampler{quit: make(chan struct{}), done: make(chan []schema.Sampling, 1)}
	go func() { // ends with stop
		var seen tally
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for seen.add(r.samples()); ; {
			select {
			case <-ticker.C:
				seen.add(r.samples())
			case <-s.quit:
				seen.add(r.samples())
				s.done <- seen.sum()
				return
			}
		}
	}()
	return s
}

func (s *sampler) stop() []schema.Sampling {
	close(s.quit)
	return <-s.done
}
