package schema

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata from what Encode returns")

func fullResult() *Result {
	start := time.Date(2026, 2, 4, 19, 14, 58, 443306000, time.UTC)
	url := "https://example.org/trace.zip"
	return &Result{
		Success: true,
		System:  SystemInfo{GPU: "NVIDIA L40S", DeviceCount: 1, CPU: "Example CPU", Runtime: "CUDA", Platform: "Linux-6.1", Torch: "2.6.0", Hostname: "node-a"},
		Runs: Runs{
			{"test", EvalResult{Start: start, End: start.Add(time.Second),
				Compilation: &CompileResult{NvccFound: true, NvccVersion: "12", Success: true, Command: "nvcc", Stdout: "o", Stderr: "e", ExitCode: 0},
				Run: &RunResult{Success: true, Passed: true, Command: "python3 eval.py test CASES", Stdout: "é <&>\n", ExitCode: 112, Duration: 0.07102207000002636,
					Result: Report{{"test-count", "1"}, {"check", "pass"}, {"", "odd"}}}}},
			{"profile.0", EvalResult{Start: start, End: start, Profile: &ProfileResult{Profiler: "p", Trace: "dA==", DownloadURL: &url}}},
		},
		RunID:   "sub-1",
		Outcome: NewOutcome(OutcomePassed, ""),
		Evidence: Evidence{
			GPUType: "L40S_BK", Queue: "test",
			Timing: &Timing{Decode: 0.001, Total: 2.5, Phases: []PhaseTiming{{Name: "test", Run: &ProcessUsed{Wall: 0.07, User: 0.05, Peak: 1 << 20, Exit: -11, Signal: "SIGSEGV"}}}},
			Device: &DeviceReport{Source: "nvml", Vendor: "nvidia", Driver: "550.54", Devices: []Device{{Name: "NVIDIA L40S", UUID: "GPU-1", ProcessBefore: []Holder{{PID: 7, Name: "x"}}}},
				Sampling: []Sampling{{Phase: "benchmark", Samples: 3, ClockSM: Spread{1, 2, 3}, Throttle: []Count{{"hw-thermal", 1}}}}},
			Versions:    &Versions{Runner: "v0.1.0", Files: []FileDigest{{"eval.py", "00"}}},
			Sandbox:     NewSandbox(MeansProcess, map[string]string{GuardNetwork: "no network namespace"}),
			Ambiguous:   []string{"benchmark: hw-thermal in 1 of 3 samples"},
			SharedJudge: true,
		},
	}
}

func TestResultRoundTrip(t *testing.T) {
	want := fullResult()
	data, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "result.json")
	if *update {
		if err := os.WriteFile(golden, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if file, err := os.ReadFile(golden); err != nil || string(file) != string(data) {
		t.Errorf("Encode() is not %s (%v):\n%s", golden, err, data)
	}
	got, err := DecodeResult(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("DecodeResult(Encode()) (-want +got):\n%s", diff)
	}
}

func TestResultIsCleaned(t *testing.T) {
	r := fullResult()
	r.Runs[0].Run.Stdout = "a\x00b\xffc"
	r.Runs[0].Run.Result = Report{{"k\x00", "v\xff"}}
	r.Device.Devices[0].Name, r.Ambiguous[0] = "n\x00\xff", "\x00"
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"\x00", `\u0000`, "\xff", `\ud8`} {
		if strings.Contains(string(data), bad) {
			t.Errorf("Encode() contains %q", bad)
		}
	}
	if want := "a\uFFFDb\uFFFDc"; !strings.Contains(string(data), want) && !strings.Contains(string(data), `a\ufffdb\ufffdc`) {
		t.Errorf("Encode() lacks %q", want)
	}
}

func TestResultRefusesTwoRunsOfOneName(t *testing.T) {
	r := fullResult()
	r.Runs = append(r.Runs, r.Runs[0])
	if _, err := r.Encode(); err == nil || !strings.Contains(err.Error(), `two runs are called "test"`) {
		t.Errorf("Encode() = %v", err)
	}
}

func TestDecodeResultTolerates(t *testing.T) {
	for _, stamp := range []string{"2026-02-04T19:14:58.443306", "2026-02-04T19:14:58.443306Z", "2026-02-04T21:14:58.4433069+02:00", "2026-02-04 19:14:58.443306"} {
		r, err := DecodeResult([]byte(`{"error": null, "queue": 1, "timing": 3, "device": "L40S", "Success": true, "runs": {"test": {"start": "` + stamp + `", "end": "` + stamp + `", "vendor": {}}}}`))
		if err != nil {
			t.Errorf("%s: %v", stamp, err)
			continue
		}
		want := time.Date(2026, 2, 4, 19, 14, 58, 443306000, time.UTC)
		if got := r.Runs.Get("test"); !got.Start.Equal(want) || got.Run != nil || r.Success || r.System.DeviceCount != 1 {
			t.Errorf("%s: got %+v", stamp, r)
		}
	}
}

func TestDecodeResultRefuses(t *testing.T) {
	run := func(s string) string {
		return `{"runs": {"test": {"start": "2026-02-04T19:14:58Z", "end": "2026-02-04T19:14:58Z", "run": ` + s + `}}}`
	}
	for _, tt := range []struct{ json, want string }{
		{`{}`, "result: runs: got no such key"},
		{`{"runs": []}`, "result: runs: got a list, want an object"},
		{`{"runs": {"test": null}}`, "result: runs.test: got no object"},
		{`{"runs": {"test": {"end": ""}}}`, "result: runs.test.start: got no such key"},
		{`{"success": "true", "runs": {}}`, "result: success: got a string, want a boolean"},
		{run(`{}`), "result: runs.test.run.success: got no such key"},
		{run(`{"success": true, "passed": true, "command": "", "stdout": "", "stderr": "", "exit_code": "112", "duration": 1, "result": {}}`), "run.exit_code: got a string, want a number"},
		{run(`{"success": true, "passed": true, "command": "", "stdout": "", "stderr": "", "exit_code": 1, "duration": 1, "result": {"a": 1}}`), `run.result: got a number for "a", want strings`},
		{`{"runs": {}, "outcome": {"name": "x", "fault": "nobody", "retry": false}}`, `result: outcome.fault: got "nobody"`},
	} {
		r, err := DecodeResult([]byte(tt.json))
		if r != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("DecodeResult(%s) = %v, %v; want an error with %q", tt.json, r, err, tt.want)
		}
	}
}

func FuzzDecodeResult(f *testing.F) {
	data, err := fullResult().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeResult(data)
		if err != nil {
			if r != nil {
				t.Fatalf("a value with the error %v", err)
			}
			return
		}
		for i := range r.Runs { // cleaning may make names and keys equal: outside this fact
			if strings.ContainsRune(r.Runs[i].Name, 0) || r.Runs[i].Run != nil {
				return
			}
		}
		encoded, err := r.Encode()
		if err != nil {
			t.Fatalf("Encode of a decoded result: %v", err)
		}
		again, err := DecodeResult(encoded)
		if err != nil {
			t.Fatalf("DecodeResult of an encoded result: %v", err)
		}
		third, err := again.Encode()
		if err != nil || string(third) != string(encoded) {
			t.Fatalf("Encode is not stable (%v):\n%s\n%s", err, encoded, third)
		}
	})
}
