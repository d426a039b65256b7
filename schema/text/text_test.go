package text

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain", "plain"},
		{"  two\nlines\t", "two lines"},
		{"\x1b[31mred\x1b[0m", "red"},
		{"\x1b]0;title\x07name", "name"},
		{"\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\", "link"},
		{"\u009b2Jgone", "gone"},            // CSI as one C1 control
		{"\u009d0;title\u009cname", "name"}, // OSC and ST, likewise
		{"a\u202eb\u2066c", "a b c"},        // marks of direction
		{"bad \xff b", "bad \uFFFD b"},
		{"\x1b", ""},
		{"\x1b(Btext", "text"},
		{"0123456789x", "0123456789…"},
	} {
		if got := Line(c.in, 10); got != c.want {
			t.Errorf("Line(%q, 10) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestLines(t *testing.T) {
	for _, c := range []struct{ in, lines, coloured string }{
		{"a\r\nb\tc\n", "a\nb\tc\n", "a\nb\tc\n"},
		{"50 %\r100 %", "50 %100 %", "50 %100 %"},
		{"\x1b[1;31mred\x1b[0m\x1b[2J", "red", "\x1b[1;31mred\x1b[0m"},
		{"\x1b_bk;t=1700000000000\x07line", "line", "line"},
		{"\x1b]0;open\nnext", "\nnext", "\nnext"},
		{"\x9bm", "\uFFFDm", "\uFFFDm"},
	} {
		if got := Lines(c.in); got != c.lines {
			t.Errorf("Lines(%q) = %q, want %q", c.in, got, c.lines)
		}
		if got := Coloured(c.in); got != c.coloured {
			t.Errorf("Coloured(%q) = %q, want %q", c.in, got, c.coloured)
		}
	}
}

func TestQuote(t *testing.T) {
	if got, want := Quote(strings.Repeat("ä", 61)), `"`+strings.Repeat("ä", 60)+`"…`; got != want {
		t.Errorf("Quote of 61 runes = %s, want %s", got, want)
	}
	if got, want := Quote("\x1b["), `"\x1b["`; got != want {
		t.Errorf("Quote = %s, want %s", got, want)
	}
}

// Whatever comes in, nothing that a terminal obeys goes out.
func FuzzLine(f *testing.F) {
	for _, s := range []string{"a", "\x1b[31m", "\u009b31m", "\x1b]0;x\x07", "\u202e", "\xff\x00", "\x1b\x1b[[mm"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		line := Line(s, 40)
		if !utf8.ValidString(line) || utf8.RuneCountInString(line) > 41 {
			t.Errorf("Line(%q) = %q", s, line)
		}
		for _, r := range line + strings.NewReplacer("\n", "", "\t", "").Replace(Lines(s)) {
			if r != '\u00a0' && !unicode.IsPrint(r) {
				t.Errorf("of %q remains %q", s, r)
			}
		}
		if again := Line(line, 41); again != line {
			t.Errorf("Line(%q) = %q, and again %q", s, line, again)
		}
	})
}
