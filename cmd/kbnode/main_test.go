package main

import (
	"flag"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpu-mode/kbgen/cmd/internal/clitest"
)

var update = flag.Bool("update", false, "rewrite what testdata/script compares with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kbnode": main, "systemctl": fakeSystemctl, "useradd": fakeUseradd, "userdel": fakeUserdel, "kbnode-hash": printHash})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0") // a second for each process else
			return setupNode(env)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": clitest.Exits},
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
