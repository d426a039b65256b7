package harness

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// gpuPython is an interpreter whose torch sees a GPU, and the GPU's name. With
// KBGEN_GPU_TESTS=1, as make gpu-test sets it, there has to be one.
func gpuPython(t *testing.T) (python, name string) {
	t.Helper()
	skip := t.Skip
	if os.Getenv("KBGEN_GPU_TESTS") == "1" {
		skip = t.Fatal
	}
	var why []string
	for _, program := range []string{"python3", debianPython} {
		out, err := exec.Command(program, "-c", `
import sys, torch
print(sys.executable)
print(torch.cuda.get_device_name(0), "torch", torch.__version__, "CUDA", torch.version.cuda, "HIP", getattr(torch.version, "hip", None))
`).Output()
		if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); err == nil && len(lines) == 2 {
			return lines[0], lines[1]
		}
		why = append(why, program)
	}
	skip("NEEDS a GPU: the torch of " + strings.Join(why, " and of ") + " sees none: make gpu-test on a machine that has one")
	return "", ""
}

const gpuReference = `
import torch


def generate_input(us, seed):
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    a = torch.randn(4096, generator=gen, device="cuda")
    return {"a": a, "tail": a[2048:], "us": torch.tensor([us]), "out": torch.empty(4096, device="cuda")}


def check_implementation(data, output):
    if output.device != data["a"].device or output.shape != data["a"].shape:
        return False, "another form"
    return bool(torch.allclose(output, data["a"] + 1, rtol=1e-3, atol=1e-3)), "the values differ"
`

// gpuTimed sleeps on the GPU as long as its input says, and prints what CUDA's
// events and its own clock say of the same calls.
const gpuTimed = `
import statistics
import time

import torch


def events(work, repeats):
    list = []
    for _ in range(repeats):
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begun.record()
        work()
        ended.record()
        torch.cuda.synchronize()
        list.append(begun.elapsed_time(ended) * 1000)
    return statistics.median(list)


def clock(work, repeats):
    list = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        torch.cuda.synchronize()
        list.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(list)


CYCLES = 2_000_000
torch.cuda._sleep(CYCLES)
rate = CYCLES / events(lambda: torch.cuda._sleep(CYCLES), 20)  # cycles a microsecond


def custom_kernel(data):
    torch.cuda._sleep(int(int(data["us"]) * rate))
    return torch.add(data["a"], 1, out=data["out"])


for us in (2, 10, 100, 5000):
    data = {"a": torch.zeros(4096, device="cuda"), "us": torch.tensor([us]), "out": torch.zeros(4096, device="cuda")}
    repeats = 200 if us < 5000 else 20
    clock(lambda: custom_kernel(data), repeats)
    print("TIMES", us, events(lambda: custom_kernel(data), repeats), clock(lambda: custom_kernel(data), repeats), flush=True)
`

func gpuPayload(us ...int) *schema.Payload {
	p := &schema.Payload{
		Lang: schema.LangPython, Mode: schema.ModeTest, Harness: schema.HarnessIsolated, RankingBy: schema.RankGeom,
		Sources: schema.Files{{Name: plan.SubmissionFile}, {Name: taskFile, Text: "import torch\n"}, {Name: referenceFile, Text: gpuReference}},
	}
	for i, n := range us {
		p.Tests = append(p.Tests, schema.Case{{Name: "us", Value: schema.IntValue(int64(n))}, {Name: "seed", Value: schema.IntValue(int64(i + 1))}})
	}
	p.Benchmarks = p.Tests
	return p
}

// TestGPU is what docs/measurements.md calls not proved: whoever has a GPU runs
// make gpu-test. Open tries the channel first.
func TestGPU(t *testing.T) {
	python, name := gpuPython(t)
	s, err := openSession(t, "", gpuPayload(2, 10, 100, 5000), python, Options{})
	must(t, err)
	t.Log(name)
	for _, k := range []struct {
		name, text string
		outcomes   []string
	}{
		{"new tensor", "def custom_kernel(data):\n    return data['a'] + 1\n", []string{schema.OutcomePassed}},
		{"in place", "def custom_kernel(data):\n    data['out'].copy_(data['a'] + 1)\n    return data['out']\n", []string{schema.OutcomePassed}},
		{"over an input", "def custom_kernel(data):\n    return data['a'].add_(1)\n", []string{schema.OutcomePassed}},
		{"what is shared stays shared", `
def custom_kernel(data):
    want = data["a"] + 1
    data["tail"].zero_()
    assert not data["a"][2048:].any() and not data["out"].any() and data["us"].device.type == "cpu"
    return want
`, []string{schema.OutcomePassed}},
		{"on a second stream, honest", `
import torch

stream = torch.cuda.Stream()


def custom_kernel(data):
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000)
        torch.add(data["a"], 1, out=data["out"])
    return data["out"]
`, []string{schema.OutcomePassed}},
		{"wrong", "def custom_kernel(data):\n    return data['a']\n", []string{schema.OutcomeWrong}},
		{"too much", "def custom_kernel(data):\n    return data['a'].new_empty(40 << 20)\n", []string{schema.OutcomeWrong}},
		// Right before and after, another number every time.
		{"late, on a second stream", `
import torch

torch.cuda.synchronize = lambda *args: None
stream = torch.cuda.Stream()


def custom_kernel(data):
    torch.add(data["a"], 1, out=data["out"])
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(stream):
        for _ in range(200):
            torch.cuda._sleep(100_000)
            data["out"].add_(1e-6)
    return data["out"]
`, []string{schema.OutcomeForged}},
		{"done before the GPU is", `
import torch

torch.cuda.synchronize = lambda *args: None


def custom_kernel(data):
    torch.cuda._sleep(20_000_000)
    return data["a"] + 1
`, []string{schema.OutcomeForged, schema.OutcomeWrong}},
		{"after all that", "def custom_kernel(data):\n    return data['a'] + 1\n", []string{schema.OutcomePassed}},
	} {
		t.Run(k.name, func(t *testing.T) {
			outcome, words, _ := judged(t, s, schema.ModeTest, k.text)
			if !strings.Contains(strings.Join(k.outcomes, " "), outcome) {
				t.Errorf("%s: %s, want one of %q", outcome, words, k.outcomes)
			}
		})
	}
	t.Run("times", func(t *testing.T) { gpuTimes(t, s, name) })
}

// gpuTimes prints a table for docs/measurements.md.
func gpuTimes(t *testing.T, s *Session, name string) {
	outcome, words, run := judged(t, s, schema.ModeBenchmark, gpuTimed)
	if outcome != schema.OutcomePassed {
		t.Fatalf("%s: %s", outcome, words)
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%s\n\n| asked, µs | CUDA events, µs | worker's clock, µs | judge's clock, µs | 95 %% | strict, µs | resolution, µs | calls | left out |\n", name)
	table.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	at := 0
	for line := range strings.Lines(string(run.Process.Stdout.Head)) {
		fields := strings.Fields(line)
		if len(fields) != 4 || fields[0] != "TIMES" || at >= len(run.Measurements) {
			continue
		}
		m := run.Measurements[at]
		at++
		events, _ := strconv.ParseFloat(fields[2], 64)
		clock, _ := strconv.ParseFloat(fields[3], 64)
		strict := 0.0
		if m.Strict != nil {
			strict = *m.Strict
		}
		mean := (m.Interval[0] + m.Interval[1]) / 2
		fmt.Fprintf(&table, "| %s | %.2f | %.2f | %.2f | %.2f to %.2f | %.2f | %.2f | %d | %d |\n", fields[1], events, clock,
			mean/1000, m.Interval[0]/1000, m.Interval[1]/1000, strict/1000, m.Resolution/1000, len(m.Samples), m.LeftOut)
		if mean/1000 < 0.95*events { // the clock begins before the first kernel and ends after the last
			t.Errorf("%s µs: %.2f µs by the judge's clock, %.2f by CUDA's events", fields[1], mean/1000, events)
		}
	}
	if at != 4 {
		t.Errorf("%d of 4 times were told", at)
	}
	t.Log(table.String())
}
