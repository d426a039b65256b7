package judge

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/schema"
)

func TestParseReport(t *testing.T) {
	for _, tt := range []struct {
		in, contradicted string
		want             schema.Report
	}{
		{"a: b\n c :\td e \nplain\n:\n\n:x\n", "", schema.Report{{Key: "a", Value: "b"}, {Key: "c", Value: "d e"}, {Key: "plain", Value: ""}, {Key: "", Value: "x"}}},
		{"k: a:b\r\nl: 1\rm: 2\vn: 3\fo: 4\x1cp: 5\u0085q: 6\u2028r: 7", "", schema.Report{{Key: "k", Value: "a:b"}, {Key: "l", Value: "1"}, {Key: "m", Value: "2"}, {Key: "n", Value: "3"}, {Key: "o", Value: "4"}, {Key: "p", Value: "5"}, {Key: "q", Value: "6"}, {Key: "r", Value: "7"}}},
		{"note: 1\nnote: 2\n", "", schema.Report{{Key: "note", Value: "2"}}},
		{"check: fail\ncheck: fail\n", "", schema.Report{{Key: "check", Value: "fail"}}},
		{"check: fail\ncheck: pass\n", "check", schema.Report{{Key: "check", Value: "fail"}}},
		{"benchmark.0.mean: 5\nbenchmark.0.mean: 1\ncheck: pass", "benchmark.0.mean", schema.Report{{Key: "benchmark.0.mean", Value: "5"}, {Key: "check", Value: "pass"}}},
		{"k\x00: v\x00", "", schema.Report{{Key: "k\uFFFD", Value: "v\uFFFD"}}},
	} {
		got, contradicted := parseReport(tt.in)
		if diff := cmp.Diff(tt.want, got); diff != "" || contradicted != tt.contradicted {
			t.Errorf("parseReport(%q): contradicted %q, want %q (-want +got):\n%s", tt.in, contradicted, tt.contradicted, diff)
		}
	}
}

// pythonSays evaluates a Python expression over words, a list, and returns its
// list.
func pythonSays(t *testing.T, expr string, words []string) (list []string) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	in, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("python3", "-I", "-c", "import json,sys\nwords=json.loads(sys.argv[1])\nprint(json.dumps("+expr+"))", string(in)).Output()
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestSplitAndStripArePythons(t *testing.T) {
	var text strings.Builder
	for r := rune(1); r < 0x3100; r++ {
		text.WriteString("a" + string(r) + "b")
	}
	want := pythonSays(t, "[s for s in words[0].splitlines() if s]", []string{text.String()})
	if diff := cmp.Diff(want, strings.FieldsFunc(text.String(), lineEnd)); diff != "" {
		t.Errorf("lines (-Python +ours):\n%s", diff)
	}
	spaces := pythonSays(t, "[chr(c) for c in range(1, 0x3100) if not chr(c).strip()]", nil)
	var ours []string
	for r := rune(1); r < 0x3100; r++ {
		if space(r) {
			ours = append(ours, string(r))
		}
	}
	if diff := cmp.Diff(spaces, ours); diff != "" {
		t.Errorf("spaces (-Python +ours):\n%s", diff)
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add("check: pass\ntest.0.status: pass\n\n:\nx")
	f.Fuzz(func(t *testing.T, text string) {
		report, contradicted := parseReport(text)
		seen := map[string]bool{}
		for _, e := range report {
			if seen[e.Key] {
				t.Fatalf("key %q twice", e.Key)
			}
			seen[e.Key] = true
		}
		if contradicted != "" && !seen[contradicted] {
			t.Fatalf("contradicted %q is not in the report", contradicted)
		}
	})
}
