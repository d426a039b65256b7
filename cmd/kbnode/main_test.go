package main

import (
	"flag"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite what testdata/script compares with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kbnode": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0") // a second for each process else
			return nil
		},
	})
}

// Help pages fit a terminal.
func TestHelp(t *testing.T) {
	for name, page := range help {
		for line := range strings.Lines(page) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%q: a line of %d characters: %s", name, n, line)
			}
		}
	}
}
