package harness

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// Everything about tensors on a device but the calls of class Device in
// device.py runs here for real: floating-point tensors are on a device that is
// shared memory.

//go:embed testdata/device.py
var standInPy string

const debianPython = "/usr/bin/python3"

const deviceReference = `
import torch


def generate_input(n, seed):
    gen = torch.Generator()
    gen.manual_seed(seed)
    a = torch.randn(n, generator=gen)
    return {"a": a, "tail": a[n // 2 :], "index": torch.arange(n), "scale": 2.0, "out": torch.empty(n), "none": torch.empty(0)}


def ref_kernel(data):
    return data["a"] * data["scale"] + data["index"]


def check_implementation(data, output):
    want = ref_kernel(data)
    if type(output) is tuple:  # a tensor and one of integers
        if not torch.equal(output[1], data["index"].flip(0)):
            return False, "the integers differ"
        output = output[0]
    if type(output) is not torch.Tensor or output.shape != want.shape or output.dtype != want.dtype:
        return False, "another form"
    good = bool(torch.allclose(output, want, rtol=1e-3, atol=1e-3))
    return good, "" if good else "the values differ"
`

func devicePayload(sizes ...int) *schema.Payload {
	p := &schema.Payload{
		Lang: schema.LangPython, Mode: schema.ModeTest, Extension: schema.Extension{Harness: schema.HarnessIsolated}, RankingBy: schema.RankGeom,
		Sources: schema.Files{{Name: plan.SubmissionFile}, {Name: taskFile, Text: "import torch\n"}, {Name: referenceFile, Text: deviceReference}},
	}
	for i, n := range sizes {
		p.Tests = append(p.Tests, schema.Case{
			{Name: "n", Value: schema.IntValue(int64(n))}, {Name: "seed", Value: schema.IntValue(int64(i + 1))},
		})
	}
	p.Benchmarks = p.Tests[:1]
	return p
}

// openOnDevice starts a session whose device is the stand-in, with another text
// in it.
func openOnDevice(t *testing.T, variant string, p *schema.Payload, set func(*Options), change ...string) (*Session, error) {
	t.Helper()
	o := deviceOptions(t, "", change...)
	o.Payload, o.Variant = p, variant
	if set != nil {
		set(&o)
	}
	return openSession(t, o)
}

// openSession starts a session that ends with the test.
func openSession(t *testing.T, o Options) (*Session, error) {
	t.Helper()
	s, err := Open(t.Context(), o)
	t.Cleanup(func() {
		if s != nil {
			must(t, s.Close())
		}
	})
	return s, err
}

// deviceOptions are those of a session whose device is the stand-in, but for the payload.
func deviceOptions(t *testing.T, tools string, change ...string) Options {
	t.Helper()
	if exec.Command(debianPython, "-c", "import torch").Run() != nil {
		t.Skip(debianPython + " has no torch")
	}
	source := strings.NewReplacer(change...).Replace(standInPy)
	if len(change) > 0 && source == standInPy {
		t.Fatal("nothing was changed in the stand-in")
	}
	o := machineOptions(t, debianPython)
	o.standIn = standIn{source: source, tools: tools, memory: standInMemory(t)}
	return o
}

// standInMemory makes the memory of a stand-in for a device.
func standInMemory(t *testing.T) func(size int) (*os.File, error) {
	return func(size int) (*os.File, error) {
		m, err := newMemory("device", size)
		if err != nil {
			return nil, err
		}
		t.Cleanup(m.close)
		return m.file, nil
	}
}

// machineOptions are those of a session on this machine, but for the payload. Afterwards
// no process may be left.
func machineOptions(t *testing.T, python string) Options {
	t.Helper()
	dir, err := os.MkdirTemp("", "kbdevice-")
	must(t, err)
	must(t, os.Chmod(dir, 0o711)) // judge and worker pass through it
	environ := []string{"PATH=" + filepath.Dir(python) + ":" + os.Getenv("PATH")}
	for _, name := range []string{"LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"} {
		if value, ok := os.LookupEnv(name); ok {
			environ = append(environ, name+"="+value)
		}
	}
	t.Cleanup(func() {
		must(t, os.RemoveAll(dir))
		for _, d := range sandbox.Descendants(os.Getpid()) {
			t.Errorf("a process is left: %+v", d)
		}
	})
	return Options{Dir: dir, Python: python, Environ: environ, Sandbox: sandbox.Options{Environ: environ}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// judged runs one phase of an open session with a submission.
func judged(t *testing.T, s *Session, mode, submission string) (outcome, words string, run *Run) {
	t.Helper()
	outcome, words, run, err := s.judged(t.Context(), mode, submission)
	must(t, err)
	return outcome, words, run
}

func TestDeviceTensors(t *testing.T) {
	deviceTensors(t, false)
}

func TestSlowDeviceTensorsOfFreshInterpreters(t *testing.T) {
	testenv.NeedSlow(t)
	deviceTensors(t, true)
}

func deviceTensors(t *testing.T, fresh bool) {
	s, err := openOnDevice(t, "", devicePayload(2000, 2001), func(o *Options) { o.Fresh = fresh })
	must(t, err)
	if !s.onDevice || s.device[0] == nil || s.device[1] == nil {
		t.Fatal("the inputs are not on the device")
	}
	for i, k := range onDevice {
		if fresh && i > 1 && k.outcome != schema.OutcomeForged {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			outcome, words, _ := judged(t, s, schema.ModeTest, k.text)
			for n := 0; n < 30 && k.outcome == schema.OutcomeForged && outcome == schema.OutcomePassed; n++ {
				outcome, words, _ = judged(t, s, schema.ModeTest, k.text)
			}
			if outcome != k.outcome || !strings.Contains(words, k.words) {
				t.Errorf("%s: %s, want %s with %q", outcome, words, k.outcome, k.words)
			}
		})
	}
}

// TestSlowDeviceTimes: strict calls, batches and probes on the device, and the
// judge's part in each.
func TestSlowDeviceTimes(t *testing.T) {
	testenv.NeedSlow(t)
	s, err := openOnDevice(t, "", devicePayload(2000), nil)
	must(t, err)
	outcome, words, run := judged(t, s, schema.ModeBenchmark, onDevice[1].text)
	if outcome == schema.OutcomeAmbiguous {
		t.Skip("the machine is too busy to measure: " + words)
	}
	if outcome != schema.OutcomePassed || len(run.Measurements) != 1 {
		t.Fatalf("%s: %s", outcome, words)
	}
	if m := run.Measurements[0]; m.Resolution <= 0 || len(m.Samples) < minRuns || m.Strict == nil {
		t.Errorf("%+v", m)
	}
	if outcome, words, _ := judged(t, s, schema.ModeBenchmark, onDevice[12].text); outcome != schema.OutcomeForged && outcome != schema.OutcomeAmbiguous {
		t.Errorf("late: %s: %s", outcome, words)
	}
}

// TestDeviceHangs: a judge that waits for the flag of a worker that hangs is
// called off and works on.
func TestDeviceHangs(t *testing.T) {
	p := devicePayload(2000)
	s, err := openOnDevice(t, "", p, nil)
	must(t, err)
	p.TestTimeout = schema.Seconds(4)
	outcome, words, _ := judged(t, s, schema.ModeTest, `
calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    while calls == 2:
        pass
    return data["a"] * 2 + data["index"]
`)
	if outcome != schema.OutcomeTimeout && outcome != schema.OutcomeAmbiguous {
		t.Errorf("%s: %s", outcome, words)
	}
	p.TestTimeout = schema.Timeout{}
	if outcome, words, _ := judged(t, s, schema.ModeTest, onDevice[0].text); outcome != schema.OutcomePassed {
		t.Errorf("afterwards: %s: %s", outcome, words)
	}
}

// TestDeviceGrows: inputs and outputs that need more than there is, in the middle
// of a phase.
func TestDeviceGrows(t *testing.T) {
	s, err := openOnDevice(t, "", devicePayload(100, 9<<20, 100), nil)
	must(t, err)
	for _, k := range onDevice[:2] {
		if outcome, words, _ := judged(t, s, schema.ModeTest, k.text); outcome != schema.OutcomePassed {
			t.Errorf("%s: %s: %s", k.name, outcome, words)
		}
	}
	if in, out := s.device[0].size, s.device[1].size; in < 72<<20 || out < 36<<20 || in%deviceUnit != 0 || out%deviceUnit != 0 {
		t.Errorf("arenas of %d and %d bytes", in, out)
	}
}

// TestDeviceIsWiped: what a worker leaves on the device does not reach the next.
func TestDeviceIsWiped(t *testing.T) {
	s, err := openOnDevice(t, "", devicePayload(2000), nil)
	must(t, err)
	const whole = `
import torch


def custom_kernel(data):
    end = torch.empty(0, dtype=torch.uint8).set_(data["a"].storage().untyped())[-64:]
`
	leave := whole + `
    end.fill_(77)
    return data["a"] * 2 + data["index"]
`
	look := whole + `
    assert not end.any(), "there it is"
    return data["a"] * 2 + data["index"]
`
	for _, text := range []string{leave, look} {
		if outcome, words, _ := judged(t, s, schema.ModeTest, text); outcome != schema.OutcomePassed {
			t.Errorf("%s: %s", outcome, words)
		}
	}
}

// TestSlowDeviceTrial: where memory cannot be shared, Open says so and why, before
// there is a submission.
func TestSlowDeviceTrial(t *testing.T) {
	testenv.NeedSlow(t)
	const open = `        return self.mapped(size, descriptors)

    def mapped`
	for _, c := range []struct{ name, old, new, want string }{
		{"not to be shared", `return ["b00ff", "i7"]`, `raise RuntimeError("CUDA error: operation not supported")`, "operation not supported"},
		{"not to be opened", `raise RuntimeError(f"got {shared}")`, "pass", ""}, // is not reached
		{"refused", open, "        raise RuntimeError(\"CUDA error: invalid device context\")\n\n    def mapped", "RuntimeError: CUDA error: invalid device context"},
		{"other memory", open, "        import torch\n\n        return torch.zeros(size, dtype=torch.uint8)\n\n    def mapped", "the worker does not see what was written"},
		{"a copy", `mmap.MAP_SHARED)`, `mmap.MAP_PRIVATE)`, "does not see what was written"},
		{"a worker that dies of it", open, "        os._exit(9)\n\n    def mapped", "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := openOnDevice(t, "", devicePayload(100), nil, c.old, c.new)
			if c.want == "" {
				must(t, err)
				return
			}
			var cannot *UnsupportedError
			if !errors.As(err, &cannot) || !cannot.Machine || s != nil || !strings.Contains(cannot.What, c.want) {
				t.Errorf("Open: %v, want an UnsupportedError of the machine's with %q", err, c.want)
			}
		})
	}
}

// TestDeviceUnasked: a task that does not ask for it is not judged here.
func TestDeviceUnasked(t *testing.T) {
	p := devicePayload(100)
	p.Harness = ""
	_, err := openOnDevice(t, "pmpp_v2", p, nil)
	var cannot *UnsupportedError
	if !errors.As(err, &cannot) || cannot.Machine || !strings.Contains(err.Error(), "nothing shows that this harness works there") {
		t.Errorf("Open: %v", err)
	}
}

// TestDeviceProved: a task that does not ask for this harness is judged here where the
// machine is proved. The proof is looked for in any case: a board may require it.
func TestDeviceProved(t *testing.T) {
	for _, harness := range []string{"", schema.HarnessIsolated} {
		t.Run("asks for "+harness, func(t *testing.T) {
			p := devicePayload(100)
			p.Harness = harness
			asked := 0
			s, err := openOnDevice(t, "pmpp_v2", p, func(o *Options) { o.Unproved = func(context.Context) string { asked++; return "" } })
			must(t, err)
			if !s.onDevice || asked != 1 {
				t.Errorf("its inputs are on the device: %v; asked %d times for a proof, want once", s.onDevice, asked)
			}
		})
	}
}

// TestSeveralDevices: only the first is shared.
func TestSeveralDevices(t *testing.T) {
	_, err := openOnDevice(t, "", devicePayload(100), nil, "return 0", "return 1")
	var cannot *UnsupportedError
	if !errors.As(err, &cannot) || !strings.Contains(err.Error(), "only device 0 is shared") {
		t.Errorf("Open: %v", err)
	}
}
