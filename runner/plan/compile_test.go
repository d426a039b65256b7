package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNvccArgs(t *testing.T) {
	arch := "90a"
	p := cudaPayload()
	p.Arch, p.IncludeDirs, p.Libraries = &arch, []string{"/usr/include"}, []string{"m"}
	b := &builder{p: p}
	want := append(append([]string{"/bin/nvcc"}, cudaFlags()...),
		"-I/usr/include", "-lm", "-DTILE=64", "-DFAST", "driver.cu", "submission.cu", "-gencode=arch=compute_90a,code=sm_90a", "-o", "eval.out")
	if diff := cmp.Diff(want, b.args("nvcc", "/bin/nvcc")); diff != "" {
		t.Errorf("args of nvcc (-want +got):\n%s", diff)
	}
	p.Arch = nil
	if got := b.args("nvcc", "nvcc"); got[len(got)-3] != "-arch=native" {
		t.Errorf("without an arch: %q", got[len(got)-3:])
	}
}

func TestHipccArgs(t *testing.T) {
	arch := "gfx942"
	p := cudaPayload()
	p.Arch = &arch
	b := &builder{p: p}
	want := strings.Fields("/opt/rocm/bin/hipcc --std=c++20 -DNDEBUG -Wno-psabi -fno-strict-aliasing -O3 -x hip -DTILE=64 -DFAST driver.cu submission.cu --offload-arch=gfx942 -o eval.out")
	if diff := cmp.Diff(want, b.args("hipcc", "/opt/rocm/bin/hipcc")); diff != "" {
		t.Errorf("args of hipcc (-want +got):\n%s", diff)
	}
}
