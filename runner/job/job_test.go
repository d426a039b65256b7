package job

import (
	"fmt"
	"strings"
	"testing"
)

func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"a\nb":                   "a b",
		"\x1b]1338;url=x\ac":     "c",
		"\x00\u202eabc\u200b":    "abc",
		strings.Repeat("é", 301): strings.Repeat("é", 300) + "…",
	} {
		if got := Shown(in); got != want {
			t.Errorf("Shown(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestEnvironLookup(t *testing.T) {
	e := Environ{"A=1", "B=", "A=2", "", "odd"}
	for name, want := range map[string]string{"A": "2 true", "B": " true", "C": " false", "odd": " false"} {
		v, ok := e.Lookup(name)
		if got := fmt.Sprint(v, " ", ok); got != want {
			t.Errorf("lookup(%q) = %q, want %q", name, got, want)
		}
	}
}
