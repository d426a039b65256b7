package pipelines

import (
	"strings"
	"testing"
)

func TestForms(t *testing.T) {
	long := func(c string, n int) string { return strings.Repeat(c, n) }
	for _, f := range []struct {
		name      string
		is        func(string) bool
		fit, miss []string
	}{
		{"isName", isName, []string{"H100_BK", "MI300x8", "A"}, []string{"", "B200x16", "Ax", "Ax1", "Axx2", "x2", "MI300x123", "h100", "A\n"}},
		{"isSecretName", isSecretName, []string{"REGISTRY_TOKEN", "A", "A1"}, []string{"", "_A", "1A", "Ab"}},
		{"isSlice", isSlice, []string{"1g.10gb", "7g.80gb"}, []string{"", "8g.1gb", "1g.0gb", "1g.1234gb", "1g.10gbgb"}},
		{"isClass", isClass, []string{"gpu-mi355x", "a"}, []string{"", "-a", "a-", "-", "A"}},
		{"isArch", isArch, []string{"90a", "100", "75"}, []string{"", "9", "1000", "90ab"}},
		{"isGfx", isGfx, []string{"gfx90a", "gfx942", "gfx1100"}, []string{"", "gfx9", "gfx11000", "gfx94g", "gf942"}},
		{"isDeviceName", isDeviceName, []string{"NVIDIA H100 *", "TPU", "A100-SXM4-80GB", "AMD Instinct MI250X / MI250", "X"}, []string{"", "*", "A|B", "NVIDIA ", "é"}},
		{"isQueue", isQueue, []string{"h100-1g10gb", "_"}, []string{"", "a b", "a\x00"}},
		{"isRunID", isRunID, []string{"sub-42-H100_BK-0123456789", "a:b.c"}, []string{"", "-a", "a/b"}},
		{"isVersion", isVersion, []string{"v1.2.3-rc.1+x", "1"}, []string{"", "-1", "v1 2"}},
		{"isLabelKey", isLabelKey, []string{"gpu", "nvidia.com/gpu", long("a", 253) + "/" + long("A", 63)}, []string{"", "/a", "a/", "A.b/c", "-a/b", long("a", 254) + "/b", long("a", 64), "a/b/c"}},
		{"isLabelValue", isLabelValue, []string{"", "A_1.b-c", long("a", 63)}, []string{"-a", "a-", "a/b", long("a", 64)}},
		{"isPinned", isPinned, []string{"ghcr.io/gpu-mode/kbgen-runner:0.1.0-cuda", "localhost:5000/x:1", "a/b@sha256:" + long("a", 64), "a/b:T@sha256:" + long("0", 64), "ab:latest@sha256:" + long("1", 64), "ab:" + long("t", 128)},
			[]string{"", "ab", "a/b:latest", "a/b:" + long("t", 129), "a:5000/b@sha256:" + long("f", 63), "a:1", "ab:-x", "Ab:1", "a/b@sha256:" + long("A", 64)}},
	} {
		for _, value := range f.fit {
			if !f.is(value) {
				t.Errorf("%s(%.80q) = false, want true", f.name, value)
			}
		}
		for _, value := range f.miss {
			if f.is(value) {
				t.Errorf("%s(%.80q) = true, want false", f.name, value)
			}
		}
	}
}
