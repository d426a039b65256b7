package runner

import (
	"context"
	"encoding/base64"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema"
)

// profilePayload is a task without a main file, in mode profile: custom_kernel
// has the body, and the answer is the input.
func profilePayload(body string) *schema.Payload {
	return &schema.Payload{
		Lang: schema.LangPython, Mode: schema.ModeProfile, Extension: schema.Extension{Harness: schema.HarnessIsolated}, RankingBy: schema.RankGeom,
		Sources: schema.Files{
			{Name: "submission.py", Text: "import os, sys, time\n\ndef custom_kernel(data):\n    " + strings.ReplaceAll(strings.TrimSpace(body), "\n", "\n    ") + "\n"},
			{Name: "reference.py", Text: "def generate_input(n):\n    return n\n\n\ndef check_implementation(data, output):\n    return output == data, f'got {output}, want {data}'\n"},
		},
		Benchmarks:       []schema.Case{{{Name: "n", Value: schema.IntValue(10)}}, {{Name: "n", Value: schema.IntValue(20)}}},
		BenchmarkTimeout: schema.Seconds(120),
	}
}

// onNVIDIA is a job with this ncu.
func onNVIDIA(t *testing.T, p *schema.Payload, ncu string) Job {
	return Job{Payload: p, Devices: device.Machine{Root: t.TempDir()}, Environ: programs(t, map[string]string{"nvidia-smi": standInSMI, "ncu": ncu})}
}

// keysOf are a report's, in order.
func keysOf(r *schema.Result, phase string) string {
	var keys []string
	for _, e := range r.Runs.Get(phase).Run.Result {
		keys = append(keys, e.Key)
	}
	return strings.Join(keys, " ")
}

const profileKeys = "benchmark-count benchmark.0.spec benchmark.0.report check"

// Nsight Compute wraps the worker; its files, its text and its call are told as
// with a harness of the task's own.
func TestProfileOfTheWorkerCUDA(t *testing.T) {
	r := evaluateJob(t, context.Background(), onNVIDIA(t, profilePayload(`print("profiled", data, os.environ["POPCORN_NCU"]); return data`), standInNCU))
	wantOutcome(t, r, schema.OutcomePassed, "")
	if got := runNames(r); got != "profile.0 profile.1" || r.Harness.Name != schema.HarnessIsolated || r.Harness.NotPreloaded == "" {
		t.Fatalf("runs %q, harness %+v", got, r.Harness)
	}
	e := r.Runs.Get("profile.1")
	for _, want := range []string{"ncu: POPCORN_NCU=1 --set full --nvtx --nvtx-include custom_kernel/ --import-source 1 -c 10 -o OUT -- /", "/python3 -I /", "/profile.1/kbrun-harness\n", "profiled 20 1\n"} {
		if !strings.Contains(e.Run.Stdout, want) {
			t.Errorf("stdout %q lacks %q", e.Run.Stdout, want)
		}
	}
	if got := keysOf(r, "profile.1"); got != profileKeys || !e.Run.Success || e.Run.ExitCode != 0 || !strings.HasPrefix(e.Run.Command, "ncu --set full ") {
		t.Errorf("keys %q, run %+v", got, e.Run)
	}
	report, err := base64.StdEncoding.DecodeString(reported(t, r, "profile.1", "benchmark.0.report"))
	if err != nil || !strings.Contains(string(report), "Memory % 88") {
		t.Errorf("benchmark.0.report %q (%v)", report, err)
	}
	if e.Profile == nil || e.Profile.Profiler != "Nsight-Compute" {
		t.Fatalf("profile %+v", e.Profile)
	}
	if diff := cmp.Diff(map[string]string{"profile.ncu-rep": "report\n"}, unpack(t, e.Profile.Trace)); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
	if len(r.Measurements) > 0 {
		t.Errorf("a profile has times: %+v", r.Measurements)
	}
}

func TestProfileOfTheWorkerROCm(t *testing.T) {
	p := profilePayload("return data")
	p.Benchmarks = p.Benchmarks[:1]
	r := evaluateJob(t, context.Background(), Job{Payload: p, Devices: device.Machine{Root: amdRoot(t)}, Environ: programs(t, map[string]string{"rocprofv3": standInROCProf})})
	wantOutcome(t, r, schema.OutcomePassed, "")
	e := r.Runs.Get("profile.0")
	if e == nil || e.Profile == nil || e.Profile.Profiler != "rocPROF" || keysOf(r, "profile.0") != profileKeys || r.Harness.Name != schema.HarnessIsolated {
		t.Fatalf("%+v", r)
	}
	if want := "rocprofv3: GPU_DUMP_CODE_OBJECT=1 --log-level fatal "; !strings.Contains(e.Run.Stdout, want) {
		t.Errorf("stdout %q lacks %q", e.Run.Stdout, want)
	}
	want := map[string]string{"combined.pftrace": "onetwo", "1_kernel_trace.csv": "csv\n", "_code_object0001.o": "object\n"}
	if diff := cmp.Diff(want, unpack(t, e.Profile.Trace)); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}

// Without a GPU the worker looks at itself, and Kernelbot's reader finds a report
// and a profile all the same.
func TestProfileWithoutGPU(t *testing.T) {
	p := profilePayload("return work(data)")
	p.Sources[0].Text += "\ndef work(n):\n    return sum([1] * n)\n"
	r := evaluateJob(t, context.Background(), Job{Payload: p, Devices: device.Machine{Root: t.TempDir()}, Environ: programs(t, nil)})
	wantOutcome(t, r, schema.OutcomePassed, "")
	for _, phase := range []string{"profile.0", "profile.1"} {
		e := r.Runs.Get(phase)
		if e == nil || e.Profile == nil || e.Profile.Profiler != "cProfile" || keysOf(r, phase) != profileKeys {
			t.Fatalf("%s: %+v, outcome %+v", phase, e, r.Outcome)
		}
		report, err := base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+*").DecodeString(reported(t, r, phase, "benchmark.0.report"))
		if err != nil || !strings.Contains(string(report), "custom_kernel") || !strings.Contains(string(report), "(work)") {
			t.Errorf("benchmark.0.report %q (%v)", report, err)
		}
		if diff := cmp.Diff(map[string]string{"profile.txt": string(report)}, unpack(t, e.Profile.Trace)); diff != "" {
			t.Errorf("trace (-want +got):\n%s", diff)
		}
	}
}

// Whatever the submission does under a profiler, the judge decides, and one
// profile does not depend on the one before.
func TestProfileOfTheWorkerThatFails(t *testing.T) { profileOfTheWorkerThatFails(t, false) }

// TestSlowProfileOfTheWorkerThatFails has all of them, with ncu and without.
func TestSlowProfileOfTheWorkerThatFails(t *testing.T) {
	testenv.NeedSlow(t)
	profileOfTheWorkerThatFails(t, true)
}

func profileOfTheWorkerThatFails(t *testing.T, all bool) {
	for i, tt := range []struct{ body, outcome, text string }{
		{"return -data", schema.OutcomeWrong, "got -10, want 10"},
		{"raise KeyError(data)", schema.OutcomeException, "profile.0: benchmark 0: submission.py:4: KeyError: 10"},
		{"os._exit(3)", schema.OutcomeExited, "profile.0: benchmark 0: "},
		{"time.sleep(1e9)", schema.OutcomeTimeout, "profile.0: benchmark 0: "},
		// The profiler writes only when the whole tree below it is gone.
		{"os.fork() or time.sleep(1e9); return data", schema.OutcomePassed, ""},
	} {
		for _, ncu := range []string{standInNCU, ""} {
			if !all && (tt.outcome == schema.OutcomeTimeout || (i == 1) != (ncu == "")) {
				continue // in short: an exception without ncu, the others with it
			}
			p := profilePayload(tt.body)
			p.Benchmarks = p.Benchmarks[:1]
			job := onNVIDIA(t, p, ncu)
			if ncu == "" {
				job.Environ = programs(t, nil)
			}
			var r *schema.Result
			if tt.outcome != schema.OutcomeTimeout {
				r = evaluateJob(t, context.Background(), job)
			} else {
				longer(t, func(limit time.Duration) bool { // a busy machine lets it wait for a core most of a short one
					p.BenchmarkTimeout = schema.Seconds(limit.Seconds())
					r = evaluateJob(t, context.Background(), job)
					return r.Outcome.Name != schema.OutcomeAmbiguous
				})
			}
			told := r.Outcome.Text
			if x := r.Explanation; x != nil {
				told += x.Error
			}
			if r.Outcome.Name != tt.outcome || !strings.Contains(told, tt.text) {
				t.Errorf("%q: outcome %q: %q, want %q with %q", tt.body, r.Outcome.Name, told, tt.outcome, tt.text)
			}
			if e := r.Runs.Get("profile.0"); e == nil || (e.Run.Passed != (tt.outcome == schema.OutcomePassed)) {
				t.Errorf("%q: %+v", tt.body, e)
			}
		}
	}
}

// A profiler that does not start the worker is the machine's fault.
func TestProfilerOfTheWorkerThatFails(t *testing.T) {
	const run = "#!/bin/sh\n[ \"$1\" = --import ] && exit 1\nwhile [ \"$1\" != -- ]; do shift; done; shift\n"
	for _, tt := range []struct{ script, body, outcome, text string }{
		{"#!/bin/sh\necho '==ERROR== Failed to initialize'; exit 1\n", "return data", schema.OutcomeNoProfiler, "ncu: ==ERROR== Failed to initialize"},
		{"#!/bin/sh\nexit 127\n", "return data", schema.OutcomeNoProfiler, "ncu ended with status 127"},
		{"#!/bin/sh\nexit 9\n", "return data", schema.OutcomeNoProfiler, "ncu ended with status 9 and started no program"},
		{run + "\"$@\"; echo '==ERROR== ERR_NVGPUCTRPERM - no permission'\n", "return data", schema.OutcomeNoProfiler, "ncu: ==ERROR== ERR_NVGPUCTRPERM"},
		{run + "exec \"$@\"\n", "return data", schema.OutcomePassed, "Nsight-Compute recorded nothing"},
		{run + "exec \"$@\"\n", "return 0", schema.OutcomeWrong, "benchmark.0 failed"},
	} {
		p := profilePayload(tt.body)
		p.Benchmarks = p.Benchmarks[:1]
		r := evaluateJob(t, context.Background(), onNVIDIA(t, p, tt.script))
		wantOutcome(t, r, tt.outcome, tt.text)
		if e := r.Runs.Get("profile.0"); e != nil && e.Profile != nil {
			t.Errorf("%q: a profile of nothing", tt.script)
		}
	}
	p := profilePayload("return data")
	r := evaluateJob(t, context.Background(), Job{Payload: p, Devices: device.Machine{Root: t.TempDir()}, Environ: programs(t, map[string]string{"nvidia-smi": standInSMI})})
	if wantOutcome(t, r, schema.OutcomeNoProfiler, "profile.0: the machine has no ncu"); len(r.Runs) != 0 {
		t.Errorf("%+v", r.Runs)
	}
}

// Where the task uses torch, its profiler looks.
func TestProfileWithTorch(t *testing.T) {
	const system = "PATH=/usr/bin:/bin"
	if err := exec.Command("/usr/bin/python3", "-I", "-c", "import torch").Run(); err != nil {
		t.Skipf("/usr/bin/python3 has no torch: %v", err)
	}
	p := profilePayload("return torch.mm(data, data)")
	p.Benchmarks = p.Benchmarks[:1]
	p.Sources[0].Text = "import torch\n" + p.Sources[0].Text
	p.Sources[1].Text = "import torch\n\n\ndef generate_input(n):\n    return torch.ones(n, n)\n\n\ndef check_implementation(data, output):\n    return bool((output == len(data)).all()), ''\n"
	r := evaluateJob(t, context.Background(), Job{Payload: p, Devices: device.Machine{Root: t.TempDir()}, Environ: []string{system}})
	wantOutcome(t, r, schema.OutcomePassed, "")
	e := r.Runs.Get("profile.0")
	if e == nil || e.Profile == nil || e.Profile.Profiler != "torch.profiler" || keysOf(r, "profile.0") != profileKeys {
		t.Fatalf("%+v, outcome %+v", e, r.Outcome)
	}
	if table := unpack(t, e.Profile.Trace)["profile.txt"]; !strings.Contains(table, "aten::mm") {
		t.Errorf("profile.txt %q", table)
	}
}
