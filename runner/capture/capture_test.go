package capture

import (
	"strings"
	"testing"
)

func captured(limit int, chunks ...string) *Capture {
	c := &Capture{Limit: limit, Watch: "-DTORCH"}
	for _, s := range chunks {
		c.Write([]byte(s))
	}
	return c
}

func TestCaptureText(t *testing.T) {
	line := strings.Repeat("x", 99) + "\n"
	for _, tt := range []struct {
		name string
		in   *Capture
		want string
	}{
		{"empty", captured(OutputHead), ""},
		{"whole", captured(OutputHead, "a\n", "b"), "a\nb"},
		{"line ends", captured(OutputHead, "a\r", "\nb\rc"), "a\nb\nc"},
		{"just fits", captured(OutputHead, strings.Repeat("é", 16283)), strings.Repeat("é", 16283)},
		{"one long line", captured(OutputHead, strings.Repeat("é", 16284)), "[...] 1 lines omitted"},
		{"a long line inside", captured(OutputHead, "a\n"+strings.Repeat("x", 20000)+"\nb\n"), "a\n[...] 3 lines omitted"},
		{"beyond what is kept", captured(40000, strings.Repeat(line, 1000), "end"), strings.Repeat(line, 162) + "[...] 839 lines omitted"},
		{"damage", captured(OutputHead, "a\xffb"), "a\uFFFDb"},
		{"half a character at the cut", captured(3, "ab€"), "ab\n[...] 0 lines omitted"},
	} {
		got := tt.in.Text()
		if tt.name == "half a character at the cut" { // all that matters: no damage shown
			if strings.Contains(got, "\uFFFD") {
				t.Errorf("%s: %q", tt.name, got)
			}
			continue
		}
		if got != tt.want {
			t.Errorf("%s: Text() = %.60q… (%d), want %.60q… (%d)", tt.name, got, len(got), tt.want, len(tt.want))
		}
	}
}

// However it comes in, the end is there, and memory is bounded.
func TestCaptureKeepsTheEnd(t *testing.T) {
	var all strings.Builder
	for i := range 50000 {
		all.WriteString(strings.Repeat("x", i%7) + "\n")
	}
	whole := all.String() + "the end"
	for _, size := range []int{1, 100, 4096, endLimit - 1, endLimit, endLimit + 1, 2*endLimit + 1, len(whole)} {
		c := &Capture{Limit: 1000}
		for rest := whole; rest != ""; {
			n := min(size, len(rest))
			c.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		if end := c.End(); !strings.HasSuffix(whole, end) || len(end) < endLimit || len(end) > 2*endLimit || c.Size != int64(len(whole)) {
			t.Errorf("in pieces of %d: the end has %d bytes: %.20q", size, len(end), end)
		}
	}
	if got := captured(4, "ab", "cdefg", "h").End(); got != "abcdefgh" {
		t.Errorf("End of what is kept whole = %q", got)
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
		if got := captured(4, tt.chunks...).Seen; got != tt.want {
			t.Errorf("%q: seen = %v, want %v", tt.chunks, got, tt.want)
		}
	}
}
