package page

import (
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	for _, tt := range []struct {
		d             time.Duration
		done, growing string
	}{
		{0, "0 ms", "0 s"},
		{67 * time.Millisecond, "67 ms", "0 s"},
		{-time.Second, "0 ms", "0 s"},
		{1249 * time.Millisecond, "1.2 s", "1 s"},
		{59*time.Second + 999*time.Millisecond, "59.9 s", "59 s"},
		{time.Minute, "1 m 00 s", "1 m 00 s"},
		{3*time.Minute + 4*time.Second, "3 m 04 s", "3 m 04 s"},
		{time.Hour - time.Millisecond, "59 m 59 s", "59 m 59 s"},
		{2*time.Hour + 5*time.Minute + 59*time.Second, "2 h 05 m", "2 h 05 m"},
		{76*time.Hour + 59*time.Minute, "3 d 04 h", "3 d 04 h"},
	} {
		if got := duration(tt.d); got != tt.done {
			t.Errorf("duration(%v) = %q, want %q", tt.d, got, tt.done)
		}
		if got := elapsed(tt.d); got != tt.growing {
			t.Errorf("elapsed(%v) = %q, want %q", tt.d, got, tt.growing)
		}
	}
}

func TestBetween(t *testing.T) {
	from := time.UnixMilli(1_700_000_000_000)
	now := from.Add(90 * time.Second)
	for _, tt := range []struct {
		name     string
		from, to time.Time
		want     span
	}{
		{"not begun", time.Time{}, now, span{}},
		{"running", from, time.Time{}, span{"1 m 30 s", 1_700_000_000_000}},
		{"ended", from, from.Add(1500 * time.Millisecond), span{"1.5 s", 0}},
	} {
		if got := between(tt.from, tt.to, now); got != tt.want {
			t.Errorf("%s: between = %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1240: "1.2 KiB", 1<<20 - 1: "1.0 MiB", 20 << 20: "20.0 MiB", 1 << 30: "1.0 GiB", 1 << 60: "1048576.0 TiB",
	} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestFirstLine(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{
		{"", 5, ""},
		{"\n\n  one \ntwo", 20, "one"},
		{"äöüäöü", 6, "äöüäöü"},
		{"äöüäöü", 5, "äöüäö…"},
	} {
		if got := firstLine(tt.in, tt.limit); got != tt.want {
			t.Errorf("firstLine(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}
