package runner

import (
	"strings"
	"testing"
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
