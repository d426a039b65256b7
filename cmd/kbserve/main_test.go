package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpu-mode/kbgen/cmd/internal/clitest"
	"github.com/gpu-mode/kbgen/internal/pgtest"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store"
)

var update = flag.Bool("update", false, "rewrite what testdata/script compares with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kbserve": main})
}

func TestScripts(t *testing.T) {
	pg, err := pgtest.Start(false)
	if errors.Is(err, pgtest.ErrNone) {
		t.Logf("NOT RUN: postgres.txtar: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if pg != nil {
		t.Cleanup(func() {
			if err := pg.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	examples, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// Wrapped, so that the server ends after all scripts, which run in parallel.
	t.Run("", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Dir:                 "testdata/script",
			UpdateScripts:       *update,
			RequireExplicitExec: true,
			RequireUniqueNames:  true,
			Condition: func(cond string) (bool, error) {
				if cond != "postgres" {
					return false, fmt.Errorf("unknown condition %s", cond)
				}
				return pg != nil, nil
			},
			Setup: func(env *testscript.Env) error {
				env.Setenv("GORACE", "atexit_sleep_ms=0")
				env.Setenv("EXAMPLES", examples+"/../../examples")
				if pg == nil {
					return nil
				}
				url, err := pg.Database()
				env.Setenv("POSTGRES", url)
				return err
			},
			Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": clitest.Exits, "evaluate": evaluate, "submit": submit},
		})
	})
}

// submit is the script command that submits for a user: submit URL BOARD GPU USER.
// With check, the submission waits for the organizers' check.
func submit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 && (len(args) != 5 || args[4] != "check") {
		ts.Fatalf("usage: submit URL BOARD GPU USER [check]")
	}
	s := opened(ts, args[0])
	defer s.Close()
	accept(ts, s, args[1:])
}

func opened(ts *testscript.TestScript, url string) *store.Store {
	if file, ok := strings.CutPrefix(url, "sqlite:"); ok {
		url = "sqlite:" + ts.MkAbs(file)
	}
	s, err := store.Open(context.Background(), url)
	ts.Check(err)
	return s
}

func accept(ts *testscript.TestScript, s *store.Store, args []string) {
	_, err := s.Accept(context.Background(), store.Submission{Board: args[0], GPU: args[1], Mode: schema.ModeLeaderboard, UserID: args[2], FileName: "submission.py",
		Code: []byte("def custom_kernel(data): ..."), Time: time.Now(), Check: len(args) > 3})
	ts.Check(err)
}

// evaluate is the script command that submits for a user and records what a server
// would: evaluate URL BOARD GPU USER NANOSECONDS. With the name of an outcome in place of
// the time, its secret run has that outcome and no result.
func evaluate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 5 {
		ts.Fatalf("usage: evaluate URL BOARD GPU USER NANOSECONDS")
	}
	ctx := context.Background()
	s := opened(ts, args[0])
	defer s.Close()
	accept(ts, s, args[1:4])
	claimed, err := s.Claim(ctx, "test", 2, map[string]int{args[2]: 2}, time.Minute)
	ts.Check(err)
	mean, outcome := args[4], schema.Outcome{}
	if o, known := schema.FindOutcome(args[4]); known {
		mean, outcome = "1000", o
	}
	for _, p := range claimed {
		if p.Secret && outcome.Name != "" {
			ts.Check(s.Record(ctx, p, &schema.Result{Outcome: outcome, Error: outcome.Text}, nil))
			continue
		}
		report := schema.Report{{Key: "benchmark-count", Value: "1"}, {Key: "benchmark.0.mean", Value: mean}, {Key: "check", Value: "pass"}}
		run := schema.EvalResult{Start: time.Now(), End: time.Now(), Run: &schema.RunResult{Success: true, Passed: true, Result: report}}
		ts.Check(s.Record(ctx, p, &schema.Result{Success: true, Runs: schema.Runs{{Name: schema.ModeLeaderboard, EvalResult: run}}}, nil))
	}
}

func TestHelpPages(t *testing.T) {
	for name, page := range help {
		for _, line := range strings.Split(page, "\n") {
			if len([]rune(line)) > 84 {
				t.Errorf("help %q: %d characters in %q", name, len([]rune(line)), line)
			}
		}
	}
}

// A configuration file may set the variables of flags and those without one.
func TestConfigNames(t *testing.T) {
	for _, name := range []string{"KBSERVE_DATABASE", "KBSERVE_URL", "KBSERVE_LISTEN", "KBSERVE_RUN_TIMEOUT", "KBSERVE_ADMIN_TOKEN", "KBSERVE_GITHUB_CLIENT_ID"} {
		if vars, err := parseConfig([]byte(name + "='x'\n")); err != nil || vars[name] != "x" {
			t.Errorf("%s: %v, %v", name, vars, err)
		}
	}
	for _, name := range []string{"KBSERVE_DATA", "KBSERVE_GITHUB_TOKEN", "KBSERVE_NONE"} {
		if _, err := parseConfig([]byte(name + "=x\n")); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
