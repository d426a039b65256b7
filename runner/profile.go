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
	return errors.Join(verdict, ph.keepTrace(profilerROCm, dir))
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
	var packed []byte
	var err error
	if profiler == profilerROCm {
		packed, err = packROCm(dir, ph.work)
	} else {
		packed, err = packDir(dir)
	}
	if err != nil {
		return fmt.Errorf("packing the profile: %w", err)
	}
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
