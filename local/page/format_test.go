package page

import (
	"testing"
	"time"
)

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
