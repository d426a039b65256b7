package web

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// result is what kbrun says of a right submission; ns is about the mean of its
// benchmarks.
func result(gpu string, ns float64) *schema.Result {
	now := time.Now().UTC()
	phase := func(name string, report schema.Report) schema.Run {
		report = append(report, schema.Entry{Key: "check", Value: "pass"})
		return schema.Run{Name: name, EvalResult: schema.EvalResult{Start: now.Add(-2 * time.Second), End: now,
			Run: &schema.RunResult{Success: true, Passed: true, Command: "python3 eval.py", Duration: 1.73, Result: report}}}
	}
	tests := schema.Report{{Key: "test-count", Value: "3"}}
	for i := range 3 {
		key := fmt.Sprintf("test.%d", i)
		tests = append(tests, schema.Entry{Key: key + ".spec", Value: fmt.Sprintf("m: %d; n: 1024; k: 512; seed: %d", 64<<i, 1000+i)}, schema.Entry{Key: key + ".status", Value: "pass"})
	}
	r := &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomePassed, ""),
		System: schema.SystemInfo{GPU: "NVIDIA " + gpu, DeviceCount: 1, CPU: "AMD EPYC 9654 96-Core Processor", Runtime: "CUDA", Torch: "2.9.1+cu130", Platform: "Linux", Hostname: "canary-host"}}
	timed := schema.Report{{Key: "benchmark-count", Value: "3"}}
	for i := range 3 {
		mean := ns * math.Pow(1.8, float64(i-1))
		key := fmt.Sprintf("benchmark.%d", i)
		timed = append(timed, schema.Entry{Key: key + ".spec", Value: fmt.Sprintf("m: %d; n: %d; k: 4096; seed: %d", 1024<<i, 1024<<i, 77+i)},
			schema.Entry{Key: key + ".runs", Value: "60"}, schema.Entry{Key: key + ".mean", Value: schema.FloatRepr(mean)}, schema.Entry{Key: key + ".std", Value: schema.FloatRepr(mean / 90)},
			schema.Entry{Key: key + ".err", Value: schema.FloatRepr(mean / 700)}, schema.Entry{Key: key + ".best", Value: schema.FloatRepr(mean * .98)}, schema.Entry{Key: key + ".worst", Value: schema.FloatRepr(mean * 1.07)})
		m := schema.Measurement{Case: i, Floor: 812, Resolution: 32, Interval: [2]float64{mean * .997, mean * 1.003}}
		for j := range 60 {
			wave := 1 + .008*math.Sin(float64(j)*1.7) + .006*math.Cos(float64(j*j))
			if j%23 == 11 {
				wave += .05
			}
			m.Samples = append(m.Samples, mean*wave)
		}
		for _, name := range []string{schema.ModeBenchmark, schema.ModeLeaderboard} {
			m.Phase = name
			r.Measurements = append(r.Measurements, m)
		}
	}
	r.Runs = schema.Runs{phase(schema.ModeTest, tests), phase(schema.ModeBenchmark, slices.Clone(timed)), phase(schema.ModeLeaderboard, slices.Clone(timed))}
	r.GPUType = gpu
	r.Harness = &schema.HarnessReport{Name: schema.HarnessIsolated, Variant: "pmpp_v2"}
	r.Sandbox = &schema.Sandbox{Level: schema.SandboxFull, Means: schema.MeansNamespaces, Held: []string{schema.GuardEnvironment, schema.GuardSecrets, schema.GuardNetwork, schema.GuardFiles},
		Missing: []schema.MissingGuard{{Name: schema.GuardUser, Why: "the container has one user"}}}
	r.Device = &schema.DeviceReport{Source: "nvml", Vendor: "nvidia", Driver: "580.95.05", Runtime: "13.0",
		Sampling: []schema.Sampling{{Phase: schema.ModeLeaderboard, Samples: 40, ClockSM: schema.Spread{Min: 1755, Mean: 1900, Max: 1965}, PowerW: schema.Spread{Min: 200, Mean: 500, Max: 641}, Temperature: schema.Spread{Min: 41, Mean: 50, Max: 58}}}}
	r.Versions = &schema.Versions{Runner: "v0.9.0", Python: "3.12.3", Image: "ghcr.io/example/runner@sha256:0123"}
	r.Timing = &schema.Timing{Total: 14.2}
	return r
}

// wrong is what kbrun says of a submission that fails a test.
func wrong(gpu string) *schema.Result {
	r := result(gpu, 1000)
	test := &r.Runs[0]
	test.Run.Passed = false
	test.Run.Result = schema.Report{{Key: "test-count", Value: "2"}, {Key: "test.0.spec", Value: "m: 64; n: 64"}, {Key: "test.0.status", Value: "pass"},
		{Key: "test.1.spec", Value: "m: 128; n: 64"}, {Key: "test.1.status", Value: "fail"}, {Key: "test.1.error", Value: "mismatch at [3, 17]: got 0.25, want 0.5\n12 more elements differ"}, {Key: "check", Value: "fail"}}
	r.Runs, r.Measurements = r.Runs[:1], nil
	r.Outcome = schema.NewOutcome(schema.OutcomeWrong, "")
	r.Outcome.Phase = schema.ModeTest
	r.Explanation = &schema.Explanation{File: "submission.py", Line: 6, Source: "return a @ b", Expected: "[0.5, 0.5, 0.25]", Got: "[0.25, 0.5, 0.25]", Printed: "debug: canary-printed\n"}
	r.Ambiguous = []string{"the GPU was slowed down in 3 of 40 samples: power cap"}
	return r
}
