package verdict

import "testing"

func TestFormatTime(t *testing.T) {
	for _, tt := range []struct {
		ns, err float64
		want    string
	}{
		// What Kernelbot's format_time prints.
		{0.5, 0, "0.5 ns"}, {5, 0, "5.00 ns"}, {2000, 0, "2000 ns"}, {2001, 0, "2.00 µs"}, {2_000_000, 0, "2000 µs"},
		{2_000_001, 0, "2.00 ms"}, {96260.01883589197, 12.5, "96.3 ± 0.01 µs"}, {1500000.5, 1200, "1500 ± 1.2 µs"},
		{6e6, 1200, "6.00 ± 0.001 ms"}, {123_456_789, 0, "123 ms"},
	} {
		if got := formatTime(tt.ns, tt.err); got != tt.want {
			t.Errorf("formatTime(%v, %v): got %q, want %q", tt.ns, tt.err, got, tt.want)
		}
	}
}

func TestProfileText(t *testing.T) {
	for _, tt := range []struct{ report, want string }{
		{"aGk/Pz8=", "hi???"},
		{"aGk*Pz8=", "hi???"},
		{"!", "the profiler's report is not base64"},
	} {
		if got := profileText(tt.report); got != tt.want {
			t.Errorf("profileText(%q) = %q, want %q", tt.report, got, tt.want)
		}
	}
}
