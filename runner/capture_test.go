package runner

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

func captured(limit int, chunks ...string) *capture {
	c := &capture{limit: limit, watch: "-DTORCH"}
	for _, s := range chunks {
		c.Write([]byte(s))
	}
	return c
}

func TestCaptureText(t *testing.T) {
	line := strings.Repeat("x", 99) + "\n"
	for _, tt := range []struct {
		name string
		in   *capture
		want string
	}{
		{"empty", captured(outputHead), ""},
		{"whole", captured(outputHead, "a\n", "b"), "a\nb"},
		{"line ends", captured(outputHead, "a\r", "\nb\rc"), "a\nb\nc"},
		{"just fits", captured(outputHead, strings.Repeat("é", 16283)), strings.Repeat("é", 16283)},
		{"one long line", captured(outputHead, strings.Repeat("é", 16284)), "[...] 1 lines omitted"},
		{"a long line inside", captured(outputHead, "a\n"+strings.Repeat("x", 20000)+"\nb\n"), "a\n[...] 3 lines omitted"},
		{"beyond what is kept", captured(40000, strings.Repeat(line, 1000), "end"), strings.Repeat(line, 162) + "[...] 839 lines omitted"},
		{"damage", captured(outputHead, "a\xffb"), "a\uFFFDb"},
		{"half a character at the cut", captured(3, "ab€"), "ab\n[...] 0 lines omitted"},
	} {
		got := tt.in.text()
		if tt.name == "half a character at the cut" { // all that matters: no damage shown
			if strings.Contains(got, "\uFFFD") {
				t.Errorf("%s: %q", tt.name, got)
			}
			continue
		}
		if got != tt.want {
			t.Errorf("%s: text() = %.60q… (%d), want %.60q… (%d)", tt.name, got, len(got), tt.want, len(tt.want))
		}
	}
}

func TestCaptureWatches(t *testing.T) {
	for _, tt := range []struct {
		chunks []string
		want   bool
	}{
		{[]string{"x -DTORCH_E"}, true},
		{[]string{"-DTO", "RCH"}, true},
		{[]string{"-", "D", "T", "O", "R", "C", "H"}, true},
		{[]string{"aaaaaaaaaaaaaa-D", "TORCH"}, true},
		{[]string{"-DTOR", "xCH"}, false},
		{nil, false},
	} {
		if got := captured(4, tt.chunks...).seen; got != tt.want {
			t.Errorf("%q: seen = %v, want %v", tt.chunks, got, tt.want)
		}
	}
}

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

// pythonSays runs a Python expression over words and returns its list.
func pythonSays(t *testing.T, expr string, words any) []string {
	t.Helper()
	needPython(t)
	in, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("python3", "-I", "-c", "import json,platform,shlex,sys\nwords=json.loads(sys.argv[1])\nprint(json.dumps("+expr+"))", string(in)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestShellJoinIsPythons(t *testing.T) {
	words := []string{"", "plain", "a b", "it's", "/tmp/x-1_2.txt", "a=b,c:d@e%f+g", "$HOME", "é", "*"}
	if got, want := shellJoin(words), pythonSays(t, "[shlex.join(words)]", words)[0]; got != want {
		t.Errorf("shellJoin = %s, want Python's %s", got, want)
	}
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

func TestPlatformIsPythons(t *testing.T) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	if got, want := platform(&uts, libc()), pythonSays(t, "[platform.platform()]", nil)[0]; got != want {
		t.Errorf("platform = %s, want Python's %s", got, want)
	}
}

func TestReadStat(t *testing.T) {
	p, ok := readStat(os.Getpid())
	if !ok || p.parent != os.Getppid() || p.name == "" {
		t.Errorf("readStat(own) = %+v, %v; parent is %d", p, ok, os.Getppid())
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
