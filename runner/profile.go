package runner

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

const (
	// profileDir lies in the phase's temporary directory, where the profiler,
	// which runs as the submission does, can write.
	profileDir = "profile_data"
	ncuReport  = "profile.ncu-rep"
	// importLimit bounds making text of a report.
	importLimit = 60 * time.Second

	profilerNCU  = "Nsight-Compute"
	profilerROCm = "rocPROF"
)

// profile runs the tester under the runtime's profiler and keeps what that
// left.
//
// Source of the calls: gpu-mode/kernelbot, run_eval.py, profile_program.
func (ph *phase) profile(ctx context.Context, c command, a asked) error {
	dir := filepath.Join(ph.tmp, profileDir)
	switch {
	case ph.system.Runtime == runtimeCUDA && ph.p.MultiGPU:
		return endf(schema.OutcomeUnsupported, "mode profile is not supported for several NVIDIA GPUs at once")
	case ph.system.Runtime == runtimeCUDA:
		return ph.profileCUDA(ctx, c, a, dir)
	case ph.system.Runtime == runtimeROCm:
		return ph.profileROCm(ctx, c, a, dir)
	}
	return endf(schema.OutcomeUnsupported, "mode profile needs an NVIDIA or AMD GPU, and the machine shows none")
}

// ncuArgs is Nsight Compute's call before the tester's.
func ncuArgs(report string) []string {
	return []string{"ncu", "--set", "full", "--nvtx", "--nvtx-include", "custom_kernel/", "--import-source", "1", "-c", "10", "-o", report, "--"}
}

func (ph *phase) profileCUDA(ctx context.Context, c command, a asked, dir string) error {
	if err := ph.needs("ncu"); err != nil {
		return err
	}
	if err := ph.ownDir(dir); err != nil {
		return err
	}
	report := filepath.Join(dir, ncuReport)
	c.argv = append(ncuArgs(report), c.argv...)
	c.environ = append(slices.Clone(c.environ), "POPCORN_NCU=1")
	verdict := ph.measure(ctx, c, a)
	run := ph.result.Run
	if run == nil {
		return verdict
	}
	if err := ph.profilerFault("ncu"); err != nil {
		return err
	}
	if text, err := ph.ncuText(ctx, report); err != nil {
		return err
	} else if text != "" {
		run.Result = setEntry(run.Result, "benchmark.0.report", base64.StdEncoding.EncodeToString([]byte(text)))
	}
	return errors.Join(verdict, ph.keepTrace(profilerNCU, dir))
}

// ncuText has Nsight Compute print its report and keeps the part that fits in
// a message. That it cannot is no failure: the report itself is kept.
func (ph *phase) ncuText(ctx context.Context, report string) (string, error) {
	done, err := ph.run(ctx, command{
		argv: []string{"ncu", "--import", report, "--print-details", "body"}, dir: ph.work, environ: ph.environ, limit: importLimit,
	})
	if err != nil {
		return "", err
	}
	if done.how != exited || done.exitCode != 0 {
		return "", stopped(ctx)
	}
	return filterNCU(done.stdout.decoded()), nil
}

// rocprofArgs is rocprofv3's call before the tester's; --hip-trace stands
// there twice in Kernelbot's, too.
func rocprofArgs(dir string) []string {
	return append(strings.Fields(`rocprofv3 --log-level fatal --hip-trace --kernel-trace --rccl-trace --marker-trace --hip-trace
		--memory-copy-trace --scratch-memory-trace --output-format pftrace csv -d`), dir, "-o", "%pid%", "--")
}

func (ph *phase) profileROCm(ctx context.Context, c command, a asked, dir string) error {
	if err := ph.needs("rocprofv3"); err != nil {
		return err
	}
	if err := ph.ownDir(dir); err != nil {
		return err
	}
	c.argv = append(rocprofArgs(dir), c.argv...)
	c.environ = append(slices.Clone(c.environ), "GPU_DUMP_CODE_OBJECT=1")
	verdict := ph.measure(ctx, c, a)
	if ph.result.Run == nil {
		return verdict
	}
	if err := ph.profilerFault("rocprofv3"); err != nil {
		return err
	}
	return errors.Join(verdict, ph.keepTrace(profilerROCm, dir))
}

// profilerFault tells whether it was the profiler that did not work, and not
// the program under it: it cannot be started, says so itself before the program
// reported anything, or may not read the device's counters.
func (ph *phase) profilerFault(program string) error {
	run := ph.result.Run
	if run.ExitCode == 126 || run.ExitCode == 127 {
		if len(run.Result) == 0 {
			return endf(schema.OutcomeNoProfiler, "%s ended with status %d", program, run.ExitCode)
		}
	}
	for line := range strings.Lines(run.Stdout + "\n" + run.Stderr) {
		line = strings.TrimSpace(line)
		switch {
		case strings.Contains(line, "ERR_NVGPUCTRPERM"):
		case strings.HasPrefix(line, "==ERROR==") && !strings.Contains(line, "application") && len(run.Result) == 0:
		default:
			continue
		}
		return endf(schema.OutcomeNoProfiler, "%s: %s", program, shorten(line, 200))
	}
	return nil
}

// needs refuses a machine without the profiler.
func (ph *phase) needs(program string) error {
	if _, err := lookPath(program, ph.environ); err != nil {
		return endf(schema.OutcomeNoProfiler, "the machine has no %s", program)
	}
	return nil
}

// keepTrace packs what the profiler left, when the tester reached a verdict.
func (ph *phase) keepTrace(profiler, dir string) error {
	if !ph.result.Run.Success {
		return nil
	}
	z := newTrace(traceLimit - ph.traced)
	var err error
	if profiler == profilerROCm {
		err = z.addROCm(dir, ph.work)
	} else {
		err = z.addAll(dir, func(string) bool { return true })
	}
	empty := len(z.names) == 0 && len(z.leftOut) == 0
	packed, packErr := z.bytes()
	if err := errors.Join(err, packErr); err != nil {
		return fmt.Errorf("packing the profile: %w", err)
	}
	if empty {
		return endf(schema.OutcomePassed, "the program passed, and %s recorded nothing of it", profiler)
	}
	ph.traced += len(packed)
	ph.result.Profile = &schema.ProfileResult{Profiler: profiler, Trace: base64.StdEncoding.EncodeToString(packed)}
	return nil
}

// setEntry gives key the value, at the end when it is new.
func setEntry(r schema.Report, key, value string) schema.Report {
	at := slices.IndexFunc(r, func(e schema.Entry) bool { return e.Key == key })
	if at < 0 {
		return append(r, schema.Entry{Key: key, Value: value})
	}
	r[at].Value = value
	return r
}
