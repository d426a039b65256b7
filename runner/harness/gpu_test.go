package harness

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
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

// TestGPU is what docs/measurements.md calls not proved: whoever has a GPU runs
// make gpu-test. It does what kbrun prove does, and prints a table.
func TestGPU(t *testing.T) {
	python, name := gpuPython(t)
	proof, err := Prove(t.Context(), machineOptions(t, python))
	must(t, err)
	for _, c := range proof.Checks {
		t.Logf("%s: %s", c.Name, c.Text)
		if !c.OK {
			t.Errorf("%s failed", c.Name)
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%s, resolution %.2f µs\n\n| asked, µs | GPU's events, µs | worker's clock, µs | judge's clock, 95 %%, µs | strict, µs | calls | left out |\n", name, proof.Resolution/1000)
	table.WriteString("|---|---|---|---|---|---|---|\n")
	for i, p := range proof.Times {
		fmt.Fprintf(&table, "| %d | %.2f | %.2f | %.2f to %.2f | %.2f | %d | %d |\n", proofUS[i], p.Events/1000, p.Worker/1000, p.Interval[0]/1000, p.Interval[1]/1000, p.Strict/1000, p.Calls, p.LeftOut)
	}
	t.Log(table.String())
}
