package plan

import (
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

	ncu     = "ncu"
	rocprof = "rocprofv3"
)

// Profilers as Kernelbot names them.
const (
	ProfilerNCU  = "Nsight-Compute"
	ProfilerROCm = "rocPROF"
)

// Profilers within the worker of the isolated harness, where there is no GPU.
const (
	ProfilerTorch  = "torch.profiler"
	ProfilerPython = "cProfile"
)

// profile plans the harness, which argv starts, under the runtime's profiler.
// harness.py is not in between: a profiler has to look into the process.
//
// Source of the calls: gpu-mode/kernelbot, run_eval.py, profile_program.
func (b *builder) profile(argv []string) *schema.Outcome {
	program := map[string]string{RuntimeCUDA: ncu, RuntimeROCm: rocprof}[b.m.Runtime]
	switch {
	case program == "" && b.m.Isolated:
		b.ph.Profile = &Profile{Profiler: b.within()}
		b.ph.Test = b.command(b.limit(), nil, argv...)
		b.finishTest()
		return nil
	case program == "":
		return schema.Outcomef(schema.OutcomeUnsupported, "mode profile needs an NVIDIA or AMD GPU, and the machine shows none")
	case program == ncu && b.p.MultiGPU:
		return schema.Outcomef(schema.OutcomeUnsupported, "mode profile is not supported for several NVIDIA GPUs at once")
	case b.m.Programs[program] == "":
		return schema.Outcomef(schema.OutcomeNoProfiler, "the machine has no %s", program)
	}
	dir := filepath.Join(b.ph.Temp, profileDir)
	pr := &Profile{Program: program, Path: b.m.Programs[program], Dir: dir}
	if program == ncu {
		report := filepath.Join(dir, ncuReport)
		pr.Profiler, pr.Environ = ProfilerNCU, []string{"POPCORN_NCU=1"}
		pr.Argv = []string{ncu, "--set", "full", "--nvtx", "--nvtx-include", "custom_kernel/", "--import-source", "1", "-c", "10", "-o", report, "--"}
		pr.Import = b.command(importLimit, nil, ncu, "--import", report, "--print-details", "body")
	} else {
		pr.Profiler, pr.Environ = ProfilerROCm, []string{"GPU_DUMP_CODE_OBJECT=1"}
		pr.Argv = append(strings.Fields(rocprof+` --log-level fatal --hip-trace --kernel-trace --rccl-trace --marker-trace --hip-trace
			--memory-copy-trace --scratch-memory-trace --output-format pftrace csv -d`), dir, "-o", "%pid%", "--") // --hip-trace twice, as Kernelbot has it
	}
	b.ph.Profile, b.ph.Test = pr, b.command(b.limit(), pr.Environ, slices.Concat(pr.Argv, argv)...)
	b.finishTest()
	return nil
}

// within is the profiler for a worker that looks at itself: torch's where the
// submission or the task uses it.
func (b *builder) within() string {
	for _, f := range b.p.Sources {
		if strings.Contains(f.Text, "import torch") || strings.Contains(f.Text, "from torch") {
			return ProfilerTorch
		}
	}
	return ProfilerPython
}
