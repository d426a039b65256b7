package session

import (
	"bytes"
	"testing"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/steps"
)

// A log's line shows its text and, on a terminal, its colours; it cannot move a
// cursor. Nor can the name that a pipeline gives to a job.
func TestLogLinesLeaveTextAndColours(t *testing.T) {
	for _, tt := range []struct{ line, coloured, plain string }{
		{"\x1b_bk;t=1795284567387\x07hello\r", "hello", "hello"},
		{"\x1b[31mred\x1b[0m\tand so on", "\x1b[31mred\x1b[0m\tand so on", "red\tand so on"},
		{"a\x1b[2Jb\x1b[1;1Hc\x1b[?25ld", "abcd", "abcd"},
		{"\x1b]0;title\x07x\x1bM\x1b7y", "xy", "xy"},
		{"nul\x00 bel\x07 c1\u009b31m", "nul bel c1", "nul bel c1"},
		{"cut short \x1b[12", "cut short ", "cut short "},
		{"cut short \x1b", "cut short ", "cut short "},
		{"größer → naïve 🚀", "größer → naïve 🚀", "größer → naïve 🚀"},
	} {
		for _, plain := range []bool{false, true} {
			var out bytes.Buffer
			f := &Follower{out: &out, show: Shown{One: true, Plain: plain}}
			f.logLine(engine.Event{Build: &engine.Build{}, Job: &engine.Job{Label: "a\x1b[2Jb\u009bm", Step: &steps.Step{}}}, []byte(tt.line))
			want := "[ab] " + tt.coloured + "\n"
			if plain {
				want = "[ab] " + tt.plain + "\n"
			}
			if out.String() != want {
				t.Errorf("line %q, plain %t, is shown as %q, want %q", tt.line, plain, &out, want)
			}
		}
	}
}
