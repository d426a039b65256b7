package format

import (
	"math"
	"testing"
	"time"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Score(12.3456e-6), "12.346 µs"}, {Microseconds(1.5), "1500000.000"}, {Microseconds(math.NaN()), "–"}, {Microseconds(math.Inf(1)), "–"},
		{Time(812), "812.0 ns"}, {Time(12_345), "12.345 µs"}, {Time(12_345_678), "12.346 ms"}, {Time(2e9), "2.000 s"}, {Time(math.NaN()), "–"},
		{Count(1, "run"), "1 run"}, {Count(0, "run"), "0 runs"}, {Count(12_345, "run"), "12,345 runs"}, {Number(-1234567), "-1,234,567"}, {Number(999), "999"},
		{Seconds(1.5).String(), "1.5s"}, {Seconds(1e300).String(), "277h46m40s"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

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
		if got := Duration(tt.d); got != tt.done {
			t.Errorf("Duration(%v) = %q, want %q", tt.d, got, tt.done)
		}
		if got := Elapsed(tt.d); got != tt.growing {
			t.Errorf("Elapsed(%v) = %q, want %q", tt.d, got, tt.growing)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1240: "1.2 KiB", 1<<20 - 1: "1.0 MiB", 20 << 20: "20.0 MiB", 1 << 30: "1.0 GiB", 1 << 60: "1048576.0 TiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
}
