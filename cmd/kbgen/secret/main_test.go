package secret

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/cmd/internal/clitest"
)

// today is when the scripts run, unless TODAY says otherwise.
const today = "2026-11-22"

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"kbgen": func() {
			day := os.Getenv("TODAY")
			if day == "" {
				day = today
			}
			now, err := time.Parse(time.DateOnly, day)
			if err != nil {
				panic(err)
			}
			os.Exit(program(func() time.Time { return now }).Run(context.Background(), &cli.Env{
				Args: os.Args[1:], LookupEnv: os.LookupEnv, Environ: os.Environ, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			}))
		},
	})
}

// program is kbgen with its command secret alone.
func program(now func() time.Time) cli.Program {
	return cli.Program{Name: "kbgen", Help: Help, Grammar: &struct {
		Secret Commands `cmd:""`
	}{New(now)}}
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			legacy, err := filepath.Abs("../../../secrets/legacy/testdata")
			env.Setenv("LEGACY", legacy)
			env.Setenv("ORG", "0190aaaa-0000-4000-8000-000000000001")
			env.Setenv("PIPELINE", "0190aaaa-0000-4000-8000-000000000002")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // a second for each process else
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": clitest.Exits, "mode": mode,
		},
	})
}

// mode compares a file's permissions: mode 600 node.key.
func mode(ts *testscript.TestScript, neg bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := fmt.Sprintf("%o", info.Mode().Perm()); got != args[0] {
		ts.Fatalf("%s has mode %s, want %s", args[1], got, args[0])
	}
}

func TestHelpFitsAScreen(t *testing.T) {
	for name, page := range Help {
		lines := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
		if len(lines) > 32 {
			t.Errorf("help page %q has %d lines, want at most 32", name, len(lines))
		}
		for _, line := range lines {
			if utf8.RuneCountInString(line) > 82 {
				t.Errorf("help page %q: %d columns, want at most 82: %s", name, utf8.RuneCountInString(line), line)
			}
		}
	}
}
