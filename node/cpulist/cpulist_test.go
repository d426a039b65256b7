package cpulist

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	faulty := map[string]bool{"x,2": true, "1-9999999": true}
	for text, want := range map[string][]int{
		"0-3,8-9": {0, 1, 2, 3, 8, 9}, "5": {5}, "": nil, "x,2": {2}, "1-9999999": nil,
	} {
		if got, err := Parse(text); !slices.Equal(got, want) || (err != nil) != faulty[text] {
			t.Errorf("Parse(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	if got := Format([]int{9, 0, 1, 2, 8, 5}); got != "0-2,5,8-9" {
		t.Errorf("Format = %q", got)
	}
}
