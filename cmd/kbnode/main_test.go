package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpu-mode/kbgen/cmd/internal/clitest"
	"github.com/gpu-mode/kbgen/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite what testdata/script compares with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kbnode": main, "useradd": fakeUseradd, "userdel": fakeUserdel, "kbnode-hash": printHash, "sign-release": signRelease})
}

// Lines with the condition slow are for TestSlowScripts.
func TestScripts(t *testing.T) { scripts(t, false) }

// TestSlowScripts runs the scripts with such lines in full.
func TestSlowScripts(t *testing.T) {
	testenv.NeedSlow(t)
	scripts(t, true)
}

func scripts(t *testing.T, slow bool) {
	t.Helper()
	files, err := clitest.Scripts("testdata/script", slow)
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files: files, UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0") // a second for each process else
			tools, err := filepath.Abs("testdata/tools")
			if err != nil {
				return err
			}
			env.Setenv("PATH", tools+":"+env.Getenv("PATH"))
			return setupNode(env)
		},
		Condition: func(name string) (bool, error) {
			if name != "slow" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return slow, nil
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
