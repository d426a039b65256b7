package pipelines

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// forms are the functions and the regular expressions that they stand for.
var forms = []struct {
	name    string
	is      func(string) bool
	pattern *regexp.Regexp
	samples []string
}{
	{"isName", isName, regexp.MustCompile(`^[A-Z][A-Z0-9_]*(x[2-9][0-9]?)?$`), []string{"H100_BK", "MI300x8", "B200x16", "A", "Ax", "Ax1", "Axx2", "x2", "MI300x123"}},
	{"isSecretName", isSecretName, regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`), []string{"REGISTRY_TOKEN", "A", "A1", "_A", "1A", "Ab"}},
	{"isSlice", isSlice, regexp.MustCompile(`^[1-7]g\.[1-9][0-9]?[0-9]?gb$`), []string{"1g.10gb", "7g.80gb", "8g.1gb", "1g.0gb", "1g.1234gb", "1g.10gbgb"}},
	{"isClass", isClass, regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`), []string{"gpu-mi355x", "a", "-a", "a-", "-"}},
	{"isArch", isArch, regexp.MustCompile(`^[0-9][0-9][0-9]?[a-z]?$`), []string{"90a", "100", "75", "9", "1000", "90ab"}},
	{"isGfx", isGfx, regexp.MustCompile(`^gfx[0-9a-f]{3,4}$`), []string{"gfx90a", "gfx942", "gfx1100", "gfx9", "gfx11000", "gfx94g", "gf942"}},
	{"isDeviceName", isDeviceName, regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9 ()./+*-]*[A-Za-z0-9)*])?$`), []string{"NVIDIA H100 *", "TPU", "*", "A100-SXM4-80GB", "A|B", "NVIDIA ", "AMD Instinct MI250X / MI250", "X"}},
	{"isQueue", isQueue, regexp.MustCompile(`^[A-Za-z0-9_-]+$`), []string{"h100-1g10gb", "_", "a b"}},
	{"isRunID", isRunID, regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]*$`), []string{"sub-42-H100_BK-0123456789", "-a", "a:b.c"}},
	{"isPinned", isPinned, nil, []string{"ghcr.io/gpu-mode/kbgen-runner:0.1.0-cuda", "localhost:5000/x:1", "a/b:latest", "a/b@sha256:" + strings.Repeat("a", 64),
		"a/b:T@sha256:" + strings.Repeat("0", 64), "a/b:" + strings.Repeat("t", 129), "a:5000/b@sha256:" + strings.Repeat("f", 63), "ab:latest@sha256:" + strings.Repeat("1", 64), "a:1"}},
}

var pinned = regexp.MustCompile(`^[a-z0-9][a-z0-9._:/-]*[a-z0-9](:[A-Za-z0-9_][A-Za-z0-9_.-]*|(:[A-Za-z0-9_.-]+)?@sha256:([0-9a-f]+))$`)

func isPinnedByPattern(ref string) bool {
	m := pinned.FindStringSubmatch(ref)
	return m != nil && !strings.HasSuffix(ref, ":latest") && (m[3] != "" || len(m[1]) <= 1+maxTag) && (m[3] == "" || len(m[3]) == 64)
}

// Every form says what its regular expression says, of the samples and of
// thousands of variants with a byte more, less or another.
func TestFormsAreTheirPatterns(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	const bytes = "aAzZ09_-.:/@x1g b\n\x00é"
	for _, f := range forms {
		want := isPinnedByPattern
		if f.pattern != nil {
			want = f.pattern.MatchString
		}
		right := 0
		for range 20_000 {
			value := f.samples[random.IntN(len(f.samples))]
			for range random.IntN(3) {
				at := random.IntN(len(value) + 1)
				with := bytes[random.IntN(len(bytes)):][:1]
				switch random.IntN(3) {
				case 0:
					value = value[:at] + with + value[at:]
				case 1:
					value = value[:at] + value[min(at+1, len(value)):]
				default:
					value = value[:at] + with + value[min(at+1, len(value)):]
				}
			}
			if got, want := f.is(value), want(value); got != want {
				t.Fatalf("%s(%q) = %v, its pattern says %v", f.name, value, got, want)
			} else if got {
				right++
			}
		}
		if right < 100 || right > 19_900 {
			t.Errorf("%s: %d of 20,000 values fit: that compares too little", f.name, right)
		}
	}
}
