package near

import "testing"

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"queue", "queue", 0},
		{"quue", "queue", 1}, {"queues", "queue", 1}, {"qveue", "queue", 1}, {"qeuue", "queue", 1}, {"kitten", "sitting", 3},
	} {
		if got := Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestName(t *testing.T) {
	have := []string{"B200_BK", "H100_BK", "H100x8"}
	for _, tt := range []struct{ got, want string }{
		{"B300_BK", "B200_BK"}, {"h100", "H100_BK"}, {"H100X", "H100x8"}, {"", ""}, {"FOO", ""}, {"l4", ""}, {"H100_KB", "H100_BK"},
	} {
		if got := Name(tt.got, have); got != tt.want {
			t.Errorf("Name(%q) = %q, want %q", tt.got, got, tt.want)
		}
	}
	if got := Clause("H10", have); got != `, nearest is "H100_BK"` {
		t.Errorf("Clause = %q", got)
	}
	if got := Clause("FOO", have); got != "" {
		t.Errorf("Clause of what is near nothing = %q", got)
	}
	if got := Perhaps("h100", have); got != "H100_BK perhaps, or another of B200_BK, H100_BK, H100x8" {
		t.Errorf("Perhaps = %q", got)
	}
	if got := Perhaps("FOO", have); got != "one of B200_BK, H100_BK, H100x8" {
		t.Errorf("Perhaps of what is near nothing = %q", got)
	}
	if got := Name("x", nil); got != "" {
		t.Errorf("Name without names = %q", got)
	}
}
