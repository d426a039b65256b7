package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Watch has probed a machine's devices and can go on watching them.
type Watch struct {
	machine Machine
	report  *schema.DeviceReport
	probe   *prober // NVIDIA, by NVML
	kfd     *kfdReader
	stop    func() []schema.Sampling // ends sampling by files; nil: there is none
}

// Probe asks what accelerators there are. A driver that does not work is in the
// report's faults, and the report is never nil.
//
// The caller must end it with [Watch.Close]; no child of this process is left
// by it, and a machine without accelerators costs a few reads of directories.
func Probe(ctx context.Context, m Machine) *Watch {
	if m.Root == "" {
		m.Root = "/"
	}
	w := &Watch{machine: m}
	vendors := []string{NVIDIA, AMD, TPU}
	if at := slices.Index(vendors, m.Vendor); at >= 0 { // before a stray tool of another vendor's
		vendors = slices.Insert(slices.Delete(vendors, at, at+1), 0, m.Vendor)
	}
	for _, vendor := range vendors {
		if w.find(ctx, vendor) {
			return w
		}
	}
	w.report = &schema.DeviceReport{Source: SourceNone}
	return w
}

// find reports whether there are devices of the vendor, or a driver of it, and
// reports them.
func (w *Watch) find(ctx context.Context, vendor string) bool {
	switch root := w.machine.Root; vendor {
	case NVIDIA:
		if w.machine.SMI == "" && !w.machine.nvidiaKernel() {
			return false
		}
		w.nvidia(ctx)
	case AMD:
		kfd := &kfdReader{root}
		if len(kfd.nodes()) == 0 {
			return false
		}
		w.kfd, w.report = kfd, kfd.report()
	case TPU:
		report := tpuReport(root)
		if len(report.Devices) == 0 {
			return false
		}
		w.report = report
	}
	return true
}

// Report is what was found at first, with what was added since.
func (w *Watch) Report() *schema.DeviceReport { return w.report }

// Visible returns the devices of the report that programs with the machine's
// environment use.
func (w *Watch) Visible() []schema.Device { return Visible(w.report, w.machine.Environ) }

// used returns the devices whose state may change a program's times.
func (w *Watch) used() []schema.Device {
	if w.machine.Vendor == None {
		return nil
	}
	return w.Visible()
}

// nvidia asks NVML, or else nvidia-smi, and again who does not answer. When a
// driver is there and answers neither, or when there is no answer that would say
// whether it is, the report names the source, faults and no devices. When nothing
// can be asked, its source is SourceNone.
func (w *Watch) nvidia(ctx context.Context) {
	m := w.machine
	source, faults := SourceNone, []string(nil)
	add := func(from string, err error) {
		if m.nvidiaKernel() || unanswered(err) {
			source = from
		}
		faults = append(faults, text.Storable(err.Error()))
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
		report, err := w.readSMI(ctx)
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

// readSMI asks nvidia-smi until it answers, within its patience.
func (w *Watch) readSMI(ctx context.Context) (*schema.DeviceReport, error) {
	m := w.machine
	return insist(ctx, m.Limit, func(limit time.Duration) (*schema.DeviceReport, error) { return readSMI(ctx, m.SMI, m.Environ, limit) })
}

// ask starts the probing process and keeps it when it works.
func (w *Watch) ask(ctx context.Context) (*schema.DeviceReport, error) {
	probe, err := start(ctx, w.machine.Probe, w.machine.Environ)
	if err != nil {
		return nil, err
	}
	report, err := w.tell(ctx, probe, w.machine.SMI == "") // otherwise nvidia-smi is asked next
	if err != nil {
		probe.close()
		return nil, err
	}
	if w.machine.OneShot {
		probe.close()
		if len(report.Devices) > 0 { // no devices and a fault would read as a driver that does not work
			report.Faults = append(report.Faults, "not sampled: the runner is process 1 of its container")
		}
		return report, nil
	}
	w.probe = probe
	return report, nil
}

// tell asks a probing process for everything, and again if it does not answer.
func (w *Watch) tell(ctx context.Context, probe *prober, again bool) (*schema.DeviceReport, error) {
	if !again {
		return probe.report(ctx, w.machine.Limit)
	}
	return insist(ctx, w.machine.Limit, func(limit time.Duration) (*schema.DeviceReport, error) { return probe.report(ctx, limit) })
}

// Begin starts sampling the devices, where that can be done.
func (w *Watch) Begin() {
	switch {
	case w.probe != nil:
		w.probe.startSampling()
	case w.kfd != nil:
		w.stop = startSampling(w.kfd, SampleInterval)
	}
}

// End stops sampling, adds what was seen to the report under that phase, and
// returns what disturbed the phase, one line each. Devices that the program
// could not see are in the report only.
func (w *Watch) End(ctx context.Context, phase string) []string {
	var seen []schema.Sampling
	var err error
	switch {
	case w.probe != nil:
		seen, err = w.probe.stopSampling(ctx, w.machine.Limit)
	case w.stop != nil:
		seen, w.stop = w.stop(), nil
	}
	var out []string
	if err != nil && w.machine.Vendor != None {
		out = append(out, fmt.Sprintf("%s: the device could not be watched: %v", phase, err))
	}
	for i := range seen {
		seen[i].Phase = phase
		out = append(out, w.disturbed(seen[i])...)
	}
	w.report.Sampling = append(w.report.Sampling, seen...)
	return out
}

// disturbed says what in a phase's samples the program did not cause.
func (w *Watch) disturbed(s schema.Sampling) []string {
	if !slices.ContainsFunc(w.used(), func(d schema.Device) bool { return d.Index == s.Index }) {
		return nil
	}
	var out []string
	for _, c := range s.Throttle {
		if disturbs(c.Reason) {
			out = append(out, fmt.Sprintf("%s: device %d was slowed down (%s) in %d of %d samples", s.Phase, s.Index, c.Reason, c.Samples, s.Samples))
		}
	}
	return out
}

// After asks once more, when every process of the submission is gone, and enters
// the processes that use the devices. It returns what may have disturbed the
// job: processes on a device that the submission could see, a device that does
// not work any more, and a device of which nobody can say it.
func (w *Watch) After(ctx context.Context) []string {
	last, err := w.settle(ctx, func(d *schema.Device, now []schema.Holder) { d.ProcessAfter = now })
	var out []string
	if err != nil && len(w.used()) > 0 {
		out = append(out, "the devices could not be asked who else used them: "+text.Storable(err.Error()))
	}
	for _, d := range w.used() {
		for _, h := range d.ProcessAfter {
			out = append(out, strings.TrimSpace(fmt.Sprintf("device %d was also used by process %d %s", d.Index, h.PID, h.Name)))
		}
		if last == nil {
			continue
		}
		at := slices.IndexFunc(last.Devices, func(now schema.Device) bool { return now.Index == d.Index })
		if at < 0 {
			out = append(out, fmt.Sprintf("device %d is not listed any more", d.Index))
		} else if fault := lost(last, last.Devices[at]); fault != "" {
			out = append(out, fmt.Sprintf("device %d %s, after the job", d.Index, fault))
		}
	}
	return out
}

// Settle asks again which processes use the devices, before anything runs, and
// replaces what was found at first. Without an answer that stays.
func (w *Watch) Settle(ctx context.Context) {
	_, _ = w.settle(ctx, func(d *schema.Device, now []schema.Holder) { d.ProcessBefore = now })
}

// settle asks which processes use the devices until no device in use has any,
// or until Machine.Settle or ctx is over. It enters every answer, and returns the
// last one; nil when there is nobody to ask. The error is that of the last
// question.
func (w *Watch) settle(ctx context.Context, enter func(*schema.Device, []schema.Holder)) (last *schema.DeviceReport, err error) {
	deadline := time.Now().Add(cmp.Or(w.machine.Settle, 2*time.Second))
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 400*time.Millisecond) {
		last, err = w.again(ctx)
		if last == nil || !w.occupied(last, enter) || time.Now().Add(pause).After(deadline) {
			return last, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return last, nil
		}
	}
}

// occupied enters the processes on each device, and reports whether a device in
// use has any, or may have: one that does not work tells of none.
func (w *Watch) occupied(now *schema.DeviceReport, enter func(*schema.Device, []schema.Holder)) bool {
	used := w.used()
	var found bool
	for _, d := range now.Devices {
		same := func(known schema.Device) bool { return known.Index == d.Index }
		if at := slices.IndexFunc(w.report.Devices, same); at >= 0 {
			if lost(now, d) != "" && len(d.ProcessBefore) == 0 {
				found = found || slices.ContainsFunc(used, same)
				continue
			}
			enter(&w.report.Devices[at], d.ProcessBefore)
			found = found || len(d.ProcessBefore) > 0 && slices.ContainsFunc(used, same)
		}
	}
	return found
}

// again asks once more, and again who does not answer.
func (w *Watch) again(ctx context.Context) (report *schema.DeviceReport, err error) {
	m := w.machine
	switch {
	case w.probe != nil:
		report, err = w.tell(ctx, w.probe, true)
	case w.kfd != nil:
		report = w.kfd.report()
	case m.OneShot && w.report.Source == SourceNVML && len(w.report.Devices) > 0:
		report, err = w.ask(ctx)
	case w.report.Source == SourceSMI && len(w.report.Devices) > 0:
		report, err = w.readSMI(ctx)
	}
	if err != nil {
		w.report.Faults = append(w.report.Faults, "asked again: "+text.Storable(err.Error()))
		return nil, err
	}
	return report, nil
}

// Close ends sampling and the probing process.
func (w *Watch) Close() {
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
	if w.probe != nil {
		w.probe.close()
	}
}
