package launcher

import (
	"testing"
	"time"
)

func TestCommandAtReadsTheLogsTimeStamps(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := &fakeBuild{number: 1, state: "passed"}
	f.builds = []*fakeBuild{b}
	b.log = "\x1b_bk;t=1795285000100\x07~~~ Preparing working directory\r\n\x1b_bk;t=1795285000123\x07~~~ Running commands\r\n\x1b_bk;t=1795285000200\x07hello\r\n"
	at, err := f.client().commandAt(t.Context(), 1, "job-0")
	if want := time.UnixMilli(1795285000123); err != nil || !at.Equal(want) {
		t.Errorf("commandAt = %v, %v, want %v", at, err, want)
	}
	b.log = "no stamps"
	if at, err := f.client().commandAt(t.Context(), 1, "job-0"); err == nil {
		t.Errorf("commandAt of a log without stamps = %v, want an error", at)
	}
}

func TestLogTailIsPrintable(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := &fakeBuild{number: 1, state: "failed"}
	f.builds = []*fakeBuild{b}
	c := f.client()
	for in, want := range map[string]string{
		"\x1b[31mred\x1b[0m\r\n":       "red",
		"\x1b_bk;t=123\x07~~~ group\n": "~~~ group",
		"\x1b]1339;url='x'\x07a\tb":    "a\tb",
		"bad \xff byte\x00":            "bad \uFFFD byte",
	} {
		b.log = in
		if got, err := c.logTail(t.Context(), 1, "job-1"); err != nil || got != want {
			t.Errorf("logTail of %q: got %q, %v, want %q", in, got, err, want)
		}
	}
}
