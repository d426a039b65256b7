package verdict

import "testing"

func TestTimes(t *testing.T) {
	for _, tt := range []struct{ mean, err, want string }{
		{"96260.01883589197", "12.5", "⏱ 96.260 µs ± 12.5 ns"}, {"1500000.5", "0", "⏱ 1.500 ms"}, {"soon", "nan", "⏱ soon"},
	} {
		if got := (&Case{Mean: tt.mean, Err: tt.err}).times(); got != tt.want {
			t.Errorf("times of %q and %q: got %q, want %q", tt.mean, tt.err, got, tt.want)
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
