package main

import "testing"

func TestCleanLeavesTextAndColours(t *testing.T) {
	for _, tt := range []struct{ line, colored, plain string }{
		{"\x1b_bk;t=1795284567387\x07hello\r", "hello", "hello"},
		{"\x1b[31mred\x1b[0m\tand so on", "\x1b[31mred\x1b[0m\tand so on", "red\tand so on"},
		{"a\x1b[2Jb\x1b[1;1Hc\x1b[?25ld", "abcd", "abcd"},
		{"\x1b]0;title\x07x\x1bM\x1b7y", "0;titlexy", "0;titlexy"},
		{"nul\x00 bel\x07 c1\u009b31m", "nul bel c131m", "nul bel c131m"},
		{"cut short \x1b[12", "cut short ", "cut short "},
		{"cut short \x1b", "cut short ", "cut short "},
		{"größer → naïve 🚀", "größer → naïve 🚀", "größer → naïve 🚀"},
	} {
		if got := string(clean([]byte(tt.line), false)); got != tt.colored {
			t.Errorf("clean(%q) = %q, want %q", tt.line, got, tt.colored)
		}
		if got := string(clean([]byte(tt.line), true)); got != tt.plain {
			t.Errorf("clean(%q, plain) = %q, want %q", tt.line, got, tt.plain)
		}
	}
}
