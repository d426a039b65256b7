package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store"
)

// small is a server that takes submissions and evaluates them at the first poll.
func small(t *testing.T, s *store.Store, passed bool) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /submission/{board}/{gpu}/{mode}", func(w http.ResponseWriter, r *http.Request) {
		u, err := s.UserByCLIID(r.Context(), r.Header.Get("X-Popcorn-Cli-Id"))
		if err != nil {
			http.Error(w, `{"detail": "unknown CLI id"}`, http.StatusUnauthorized)
			return
		}
		file, header, err := r.FormFile("file")
		if err != nil {
			t.Error(err)
			return
		}
		code, _ := io.ReadAll(file)
		out, err := s.Accept(r.Context(), store.Submission{Board: r.PathValue("board"), GPU: r.PathValue("gpu"), Mode: r.PathValue("mode"), UserID: u.ID, FileName: header.Filename, Code: code, Time: time.Now()})
		if err != nil {
			http.Error(w, `{"detail": "refused"}`, http.StatusForbidden)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"details": {"id": %d, "job_status_id": %d}, "status": "accepted"}`, out.ID, out.JobStatusID)
	})
	mux.HandleFunc("GET /user/submissions/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
		p, err := s.Poll(r.Context(), id)
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(w, `{"id": %d, "done": %t, "job": {"status": %q}}`, id, p.Done, p.Job.Status)
		claimed, err := s.Claim(r.Context(), "test", 2, nil, time.Minute)
		for _, run := range claimed {
			if err == nil {
				err = s.Record(r.Context(), run, resultOf(run.Mode, passed), []byte("{\"success\": true, \"error\": \"\", \"runs\": {}, \"system\": {}}"))
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
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
	if _, _, err := store.Migrate(ctx, url); err != nil {
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
		{"leaderboard", true, []string{"--gpu", "H100", "--cleanup"}, 0, "ranked   1.000 µs", none},
		{"rows stay", true, []string{"--gpu", "H100"}, 0, "kbserve selftest --remove kbserve-test-", some},
		{"benchmark", true, []string{"--gpu", "H100", "--mode", "benchmark", "--cleanup"}, 0, "runs: 2, reports: 1", none},
		{"another task", true, []string{"--gpu", "H100", "--mode", "test", "--task", "vectoradd_cu", "--cleanup"}, 0, "runs: 1, reports: 1", none},
		{"wrong answer", false, []string{"--gpu", "H100", "--cleanup"}, 1, "ended as failed", none},
		{"no time", true, []string{"--gpu", "H100", "--timeout", "1ns", "--cleanup"}, 1, "is not over after 1ns", none},
		{"mode that is none", true, []string{"--gpu", "H100", "--mode", "ranked", "--cleanup"}, 1, "got status 403", none},
		{"no GPU type", true, nil, 2, "--gpu", none},
		{"unknown task", true, []string{"--gpu", "H100", "--task", "x"}, 2, "want the name of an example", none},
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
