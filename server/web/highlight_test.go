package web

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"time"
)

var span = regexp.MustCompile(`</?span( class="l[clsnk]")?>`)

// Highlighting adds spans and changes no text, whatever a submission holds.
func TestHighlight(t *testing.T) {
	for _, c := range []struct{ file, code, want string }{
		{"a.py", "def f(x):\n    return x + 1  # <b>\n", `<span class="lk">def</span> f(x):`},
		{"a.py", `s = "<script>alert(1)</script>"`, `<span class="ls">&#34;&lt;script&gt;alert(1)&lt;/script&gt;&#34;</span>`},
		{"a.cu", "__global__ void k(float *a) { a[0] = 1.5f; } // one\n/* two\nlines */", `<span class="lc">lines */</span>`},
		{"a.py", `s = """open` + "\nnever closed", ""},
		{"a.py", "\t\x01é\u202e毛 '\\\n", ""},
		{"a.txt", "<i>&amp;", ""},
		{"a.py", "", ""},
		{"a.py", "@triton.jit\nx = 0x1F", `<span class="lk">@triton.jit</span>`},
		{"a.py", strings.Repeat("\n \t", 20_000), ""},
		{"a.py", strings.Repeat(`"""`, 20_000), ""},
		{"a.cpp", strings.Repeat("/*", 30_000), ""},
		{"a.py", strings.Repeat("x = 1\n", 100_000), "x = 1"},
	} {
		began := time.Now()
		var lines []string
		for _, line := range highlight(c.code, c.file) {
			lines = append(lines, string(line))
		}
		got := strings.Join(lines, "\n")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("highlighting %.40q took %v", c.code, took)
		}
		if text := html.UnescapeString(span.ReplaceAllString(got, "")); text != c.code {
			t.Errorf("highlighting %.40q gives the text %.80q", c.code, text)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("highlighting %.80q gives %.300q, want %q in it", c.code, got, c.want)
		}
	}
}
