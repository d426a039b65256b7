package glob

import "testing"

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"main", "main", true},
		{"main", "maintenance", false},
		{"*", "", true},
		{"release/*", "release/1/2", true},
		{"release/*", "releases", false},
		{"*dev*", "a/dev/b", true},
		{"a*b*c", "abbc", true},
		{"a*b*c", "acb", false},
		{"ab*b", "ab", false},
		{"f[1]", "f[1]", true},
		{"f?", "fx", false},
	} {
		if got := Match(tt.pattern, tt.s); got != tt.want {
			t.Errorf("Match(%q, %q) = %t, want %t", tt.pattern, tt.s, got, tt.want)
		}
	}
}
