package page

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
)

func mustRender(t *testing.T, log string, openLast bool) logView {
	t.Helper()
	v, err := renderLog([]byte(log), logStyle{location: time.UTC, openLast: openLast})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// outline writes a view as one line per group: "+" open, "-" closed, "~" quiet,
// the header and its duration, and the text.
func outline(v logView) string {
	var b strings.Builder
	for _, g := range v.Groups {
		sign := "-"
		if g.Open {
			sign = "+"
		}
		if g.Quiet {
			sign += "~"
		}
		lines := strings.TrimSuffix(anyTag.ReplaceAllString(strings.ReplaceAll(string(g.Lines), "</div>", "|"), ""), "|")
		fmt.Fprintf(&b, "%s %s [%s] %s\n", sign, g.Header, g.Duration, lines)
	}
	return b.String()
}

func TestLogGroups(t *testing.T) {
	for _, tt := range []struct {
		name, log string
		openLast  bool
		want      string
	}{
		{"empty", "", true, ""},
		{"no group", "one\ntwo\n", false, "+  [] one|two\n"},
		{"closed", "--- A\none\n--- B\ntwo", false, "- A [] one\n- B [] two\n"},
		{"last one open", "--- A\none\n--- B\ntwo", true, "- A [] one\n+ B [] two\n"},
		{"open one", "+++ A\none\n--- B\ntwo", true, "+ A [] one\n- B [] two\n"},
		{"quiet", "~~~ A\none", false, "-~ A [] one\n"},
		{"opened later", "--- A\none\n^^^ +++\ntwo\n--- B", true, "+ A [] one|two\n- B [] \n"},
		{"before the first", "zero\n--- A\none", false, "+  [] zero\n- A [] one\n"},
		{"coloured", "\x1b[90m--- A\x1b[0m\none", false, "- A [] one\n"},
		{"no header", "----\n---\n--- \n", false, "+  [] ----|---|---\n"},
		{"carriage return", "\r\n--- A\r\n10%\r20%\r\n", false, "+  [] &nbsp;\n- A [] 20%\n"},
		{"times", "\x1b_bk;t=1000000000000\x07--- A\r\n\x1b_bk;t=1000000000500\x07one\r\n\x1b_bk;t=1000000001250\x07--- B\r\n", false, "- A [1.2 s] 01:46:40.500one\n- B [] \n"},
		{"relative times", "\x1b_bk;t=1000000000000\x07one\n\x1b_bk;dt=5\x07two\n", false, "+  [] 01:46:40.000one|01:46:40.005two\n"},
		{"relative times without a beginning", "\x1b_bk;dt=5\x07two\n", false, "+  [] two\n"},
	} {
		if got := outline(mustRender(t, tt.log, tt.openLast)); got != tt.want {
			t.Errorf("%s: %q renders as\n%swant\n%s", tt.name, tt.log, got, tt.want)
		}
	}
}

func TestLogLines(t *testing.T) {
	for _, tt := range []struct{ name, log, want string }{
		{"colour", "\x1b[31mred\x1b[0m", `<div><span class="term-fg31">red</span></div>`},
		{"spaces", "    x", `<div>    x</div>`},
		{"markup", `<script>"'&`, `<div>&lt;script&gt;&quot;&#39;&amp;</div>`},
		{"link", "\x1b]8;;https://e.com/?a&b\x07x\x1b]8;;\x07", `<div><a href="https://e.com/?a&amp;b" rel="noopener noreferrer nofollow">x</a></div>`},
		{"script link", "\x1b]8;;javascript:alert(1)\x07x\x1b]8;;\x07", `<div><a>x</a></div>`},
		{"data link", "\x1b]1339;url=data:text/html,x;content=x\x07", `<div><a>x</a></div>`},
		{"file link", "\x1b]1339;url=file:///etc/passwd;content=x\x07", `<div><a>x</a></div>`},
		{"foreign image", "\x1b]1338;url=http://e.com/x.png;alt=a picture\x07", `<div>[image: a picture]</div>`},
		{"image attribute", "\x1b]1338;url=/x.png;alt=\\\"><xss>\x07", `<div>[image: &#34;&gt;&lt;xss&gt;]</div>`},
		{"own image", "\x1b]1337;File=name=MS5naWY=;inline=1:R0lG\x07", `<div><img alt="1.gif" src="data:image/gif;base64,R0lG"></div>`},
		{"own page", "\x1b]1337;File=name=MS5odG1s;inline=1:R0lG\x07", `<div>[image: 1.html]</div>`},
	} {
		got := string(mustRender(t, tt.log, false).Groups[0].Lines)
		if got = strings.TrimSuffix(got, "\n"); got != tt.want {
			t.Errorf("%s: %q renders as\n%s\nwant\n%s", tt.name, tt.log, got, tt.want)
		}
	}
}

// A long log keeps every line: nothing is lost between the terminal's
// scrollback and its screen.
func TestLogKeepsLines(t *testing.T) {
	const n = 3*scrollback + 7
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d.%s\n", i, strings.Repeat("x", i%(2*columns)))
	}
	lines := string(mustRender(t, b.String(), false).Groups[0].Lines)
	if got := strings.Count(lines, "<div>"); got != n {
		t.Errorf("got %d lines, want %d", got, n)
	}
	for i := range n {
		if !strings.Contains(lines, fmt.Sprintf("<div>line %d.", i)) {
			t.Fatalf("line %d is gone", i)
		}
	}
}

// Numbers that overflow the terminal's cursor once filled the memory.
func TestHugeControls(t *testing.T) {
	for _, code := range "ABCDEFGH" {
		log := "x\n\nx" + fmt.Sprintf("\x1b[9223372036854775807%[1]c\x1b[1;9223372036854775807%[1]c\x1b[009223372036854775807%[1]c", code) + "end"
		if got := outline(mustRender(t, log, false)); !strings.Contains(got, "end") {
			t.Errorf("%q renders as %q", log, got)
		}
	}
}

// Many short lines must not cost a screen's row of memory each.
// A large log does not take the machine's memory.
func TestSlowLogMemory(t *testing.T) {
	testenv.NeedSlow(t)
	log := strings.Repeat("x\n", maxRendered/2)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v := mustRender(t, log, false)
	runtime.ReadMemStats(&after)
	if got := len(v.Groups[0].Lines); got > 16*len(log) {
		t.Errorf("%d bytes of log became %d of HTML", len(log), got)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<30 {
		t.Errorf("rendering %d bytes allocated %d MiB", len(log), got>>20)
	}
}

var logTags = regexp.MustCompile(`</?div>|<time>[0-9:.]{12}</time>|<span class="[a-z0-9 -]*">|</span>|<a>|</a>|<a href="https?://[^"<>]*" rel="noopener noreferrer nofollow">|<img alt="[^"<>]*" src="data:image/[^"<>]*"( width="[^"<>]*")?( height="[^"<>]*")?>`)

func FuzzLog(f *testing.F) {
	f.Add([]byte("\x1b_bk;t=1000000000000\x07--- A\r\n\x1b[1;31m<b>\x1b[0m\x1b[2K\x1b[3A\x1b7\x1b8\x1bM"))
	f.Add([]byte("\x1b]1338;url=http://e;alt=\"><x>\x07\x1b]8;;http://e\x07x\x1b]1337;File=name=MS5naWY=;inline=1;width=\"><x>:R0lG\x07"))
	f.Add([]byte("\x1b[99999999999999B\n+++ x\n^^^ +++"))
	f.Fuzz(func(t *testing.T, log []byte) {
		v, err := renderLog(log, logStyle{location: time.UTC})
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range v.Groups {
			rest := logTags.ReplaceAllString(string(g.Lines), "")
			if at := strings.IndexAny(rest, `<>"`); at >= 0 {
				t.Errorf("%q holds foreign markup: %q", log, rest)
			}
		}
	})
}

func BenchmarkLog(b *testing.B) {
	var log strings.Builder
	for i := 0; log.Len() < maxRendered; i++ {
		fmt.Fprintf(&log, "\x1b_bk;t=%d\x07\x1b[32mok\x1b[0m size: %d; some text that a test prints\r\n", 1_700_000_000_000+i, i)
	}
	b.SetBytes(int64(log.Len()))
	for b.Loop() {
		if _, err := renderLog([]byte(log.String()), logStyle{location: time.UTC}); err != nil {
			b.Fatal(err)
		}
	}
}
