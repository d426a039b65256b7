package web

import (
	"slices"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/verdict/view"
)

func TestWords(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ got, want string }{
		{percentage(0.0001), "< 0.1 %"}, {percentage(0.031), "+3.1 %"}, {percentage(1.5), "×2.5"}, {percentage(40), "×41"},
		{spell(45 * time.Second), "45 seconds"}, {spell(time.Hour + 5*time.Minute), "1 hour 5 minutes"}, {spell(7*time.Hour + 5*time.Minute), "7 hours"},
		{spell(25 * time.Hour), "1 day 1 hour"}, {spell(9 * 24 * time.Hour), "9 days"}, {spell(-time.Second), "0 seconds"}, {spell(100 * 24 * time.Hour), "3 months"},
		{about(3 * time.Second), "a few seconds"}, {about(73 * time.Second), "about 1 minute"}, {about(42 * time.Second), "about 40 seconds"}, {about(0), ""}, {about(3*time.Hour + time.Minute), "about 3 hours"},
		{deadline(now.Add(49*time.Hour), now), "ends in 2 days 1 hour"}, {deadline(now.Add(-time.Minute), now), "ended 1 minute ago"},
		{newMoment(now.Add(-3*time.Minute), now).Text, "3 min ago"}, {newMoment(now, now).Text, "just now"}, {newMoment(now.Add(-48*time.Hour), now).Text, "20 Nov 12:00"},
		{newMoment(now.Add(-400*24*time.Hour), now).Text, "18 Oct 2025"}, {newMoment(time.Time{}, now).Text, ""},
		{name("  \u202e "), "(no name)"}, {view.Sentence("got 3"), "Got 3."}, {view.Sentence("Why?"), "Why?"},
		{shell("matmul"), "matmul"}, {shell("it's $(here)"), `'it'\''s $(here)'`},
		{plainName("../../etc/passwd"), "_.._etc_passwd"}, {plainName("a b\"c.py"), "a_b_c.py"}, {plainName("…"), "submission.txt"},
		{summary("# Title\n\n`Sort` **these** numbers.\nMore", 40), "Sort these numbers."},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	if got := behind(2e-6, 2e-6); got != nil {
		t.Errorf("the first is %q behind itself", *got)
	}
	if got := behind(3e-6, 2e-6); got == nil || *got != (lag{"+1.000", "+50.0 %"}) {
		t.Errorf("3 µs are %q behind 2 µs", got)
	}
}

func TestOrderOfGPUs(t *testing.T) {
	got := orderGPUs([]string{"A100", "B200_BK", "CPU_BK", "H100", "L4", "MI300", "MI300_BK", "T4", "Z1"})
	want := []string{"B200_BK", "H100", "MI300", "MI300_BK", "A100", "L4", "T4", "CPU_BK", "Z1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestExpected(t *testing.T) {
	for _, c := range []struct {
		agents, running, before int
		known                   bool
		want                    time.Duration
	}{{2, 1, 0, true, 0}, {2, 2, 0, true, 30 * time.Second}, {2, 2, 3, true, 2 * time.Minute}, {0, 1, 0, false, time.Minute}, {0, 0, 0, true, 0}} {
		g := &backend.GPUStatus{Known: c.known, Agents: c.agents, Running: c.running, Typical: time.Minute}
		if got := expected(g, c.before); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
	if got := expected(&backend.GPUStatus{Known: true, Agents: 1, Running: 1}, 0); got != 0 {
		t.Errorf("without any run yet: got %s, want 0", got)
	}
}
