package plan

import (
	"regexp"
	"testing"
)

func TestVariants(t *testing.T) {
	digest := regexp.MustCompile(`^[0-9a-f]{64}$`)
	names, inProcess := map[string]bool{}, 0
	for sum, v := range variants {
		if !digest.MatchString(sum) || v.Name == "" || v.Tasks == "" || names[v.Name] {
			t.Errorf("%s: %+v is no digest, has no name or no tasks, or shares its name", sum, v)
		}
		names[v.Name] = true
		if v.InProcess {
			inProcess++
		}
	}
	// 16 of reference-kernels, four of them in the tester, and kernelbot's own.
	if len(names) != 17 || inProcess != 4 {
		t.Errorf("%d variants, %d of them in the tester, want 17 and 4", len(names), inProcess)
	}
	for _, text := range []string{"", "import submission\n"} {
		if v, known := KnownHarness(text); known {
			t.Errorf("KnownHarness(%q) = %+v", text, v)
		}
	}
}
