package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/database"
)

// small is kbserve's server, with an evaluation at each poll in the builds' place.
func small(t *testing.T, s *store.Store, passed bool) *httptest.Server {
	client, err := launcher.New(launcher.Options{BaseURL: "http://127.0.0.1:1/", Token: "none", Org: "org", Pipeline: "kernelbot"})
	if err != nil {
		t.Fatal(err)
	}
	full, err := server.New(t.Context(), server.Options{Store: s, Launcher: client, Fleet: pipelines.Fleet, PublicURL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	small := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			claimed, err := s.Claim(r.Context(), "test", 2, nil, time.Minute)
			for _, run := range claimed {
				if err == nil {
					err = s.Record(r.Context(), run, resultOf(run.Mode, passed), []byte(`{"success": true, "error": "", "runs": {}, "system": {}}`))
				}
			}
			if err != nil {
				t.Error(err)
			}
		}
		full.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(small.Close)
	return small
}

func resultOf(mode string, passed bool) *schema.Result {
	r := &schema.Result{Success: true, System: schema.SystemInfo{GPU: "NVIDIA H100"}}
	for _, name := range []string{schema.ModeTest, schema.ModeBenchmark, schema.ModeLeaderboard} {
		report := schema.Report{{Key: "benchmark-count", Value: "1"}, {Key: "benchmark.0.mean", Value: "1000"}, {Key: "check", Value: "pass"}}
		run := schema.EvalResult{Start: time.Now(), End: time.Now(), Run: &schema.RunResult{Success: true, Passed: passed, Result: report}}
		r.Runs = append(r.Runs, schema.Run{Name: name, EvalResult: run})
		if name == mode || !passed {
			break
		}
	}
	return r
}

// selftested runs the command against a small server; rows counts what is left.
func selftested(t *testing.T, passed bool, args ...string) (status int, out string, rows func() string) {
	t.Helper()
	ctx := context.Background()
	url := "sqlite:" + filepath.Join(t.TempDir(), "kb.db")
	if _, _, err := database.Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	server := small(t, s, passed)
	run := func(args ...string) (int, string) {
		var out bytes.Buffer
		env := &cli.Env{Args: append(args, "--database", url), LookupEnv: func(string) (string, bool) { return "", false }, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out}
		return program().Run(ctx, env), out.String()
	}
	status, out = run(append([]string{"selftest", "--url", server.URL, "--interval", "1ms"}, args...)...)
	return status, out, func() string {
		stats, err := s.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		users, err := s.Users(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(stats.Boards) > 0 { // as a later call would
			if status, out := run("selftest", "--remove", stats.Boards[0].Board); status != 0 {
				t.Errorf("--remove: %d, %s", status, out)
			}
		}
		return fmt.Sprintf("boards %d, submissions %d, users %d", len(stats.Boards), stats.Submissions, len(users))
	}
}

func TestSelftest(t *testing.T) {
	const none, some = "boards 0, submissions 0, users 0", "boards 1, submissions 1, users 1"
	for _, c := range []struct {
		name   string
		passed bool
		args   []string
		status int
		says   string
		left   string
	}{
		{"leaderboard", true, []string{"--gpu", "H100_BK", "--cleanup"}, 0, "ranked   1.000 µs", none},
		{"rows stay", true, []string{"--gpu", "H100_BK"}, 0, "kbserve selftest --remove kbserve-test-", some},
		{"benchmark", true, []string{"--gpu", "H100_BK", "--mode", "benchmark", "--cleanup"}, 0, "runs: 2, reports: 1", none},
		{"another task", true, []string{"--gpu", "H100_BK", "--mode", "test", "--task", "vectoradd_cu", "--cleanup"}, 0, "runs: 1, reports: 1", none},
		{"wrong answer", false, []string{"--gpu", "H100_BK", "--cleanup"}, 1, "ended as failed", none},
		{"no time", true, []string{"--gpu", "H100_BK", "--timeout", "1ns", "--cleanup"}, 1, "is not over after 1ns", none},
		{"mode that is none", true, []string{"--gpu", "H100_BK", "--mode", "ranked", "--cleanup"}, 1, "got status 400", none},
		{"no GPU type", true, nil, 2, "--gpu", none},
		{"unknown task", true, []string{"--gpu", "H100_BK", "--task", "x"}, 2, "want the name of an example", none},
		{"no such board", true, []string{"--remove", "sort"}, 1, "begins with kbserve-test-", none},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, out, rows := selftested(t, c.passed, c.args...)
			if status != c.status || !strings.Contains(out, c.says) {
				t.Errorf("status %d, want %d with %q:\n%s", status, c.status, c.says, out)
			}
			if got := rows(); got != c.left {
				t.Errorf("%s are left, want %s", got, c.left)
			}
			if got := rows(); got != none {
				t.Errorf("%s are left after --remove, want none", got)
			}
		})
	}
}
