package main

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpu-mode/kbgen/cmd/internal/clitest"
	"github.com/gpu-mode/kbgen/schema"
)

var update = flag.Bool("update", false, "rewrite what testdata/script compares with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kblaunch": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0") // a second for each process else
			f := &fake{}
			server := httptest.NewUnstartedServer(f)
			f.server = server
			server.Start()
			env.Defer(f.server.Close)
			env.Values["fake"] = f
			env.Vars = append(env.Vars, "KBLAUNCH_API_URL="+f.server.URL, "BUILDKITE_API_TOKEN=bkua_secret")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": clitest.Exits, "state": state, "requests": requests, "interrupt": interrupt,
		},
	})
}

// state compares the state of the fake's only build: state canceled.
func state(ts *testscript.TestScript, neg bool, args []string) {
	f := ts.Value("fake").(*fake)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != args[0] {
		ts.Fatalf("the build is %q, want %q", f.state, args[0])
	}
}

// requests compares how many requests the fake got: requests 0.
func requests(ts *testscript.TestScript, neg bool, args []string) {
	f := ts.Value("fake").(*fake)
	f.mu.Lock()
	defer f.mu.Unlock()
	if strconv.Itoa(f.requests) != args[0] {
		ts.Fatalf("got %d requests, want %s", f.requests, args[0])
	}
}

// interrupt sends Ctrl-C to a background kblaunch once its build is watched,
// and waits for it: interrupt STATUS ARGUMENT...
func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	f := ts.Value("fake").(*fake)
	path, err := exec.LookPath("kblaunch")
	ts.Check(err)
	cmd := exec.Command(path, args[1:]...)
	cmd.Env = append(os.Environ(), "KBLAUNCH_API_URL="+f.server.URL, "BUILDKITE_API_TOKEN=bkua_secret")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	f.mu.Lock()
	before := f.requests
	f.mu.Unlock()
	ts.Check(cmd.Start())
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	for watched := false; !watched; {
		select {
		case <-ended:
			ts.Fatalf("kblaunch ended before its build was watched: %s", stderr.String())
		case <-time.After(10 * time.Millisecond):
		}
		f.mu.Lock()
		watched = f.requests > before+1
		f.mu.Unlock()
	}
	ts.Check(cmd.Process.Signal(syscall.SIGINT))
	<-ended
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("exit status %s, want %s: %s", got, args[0], stderr.String())
	}
	if !strings.Contains(stderr.String(), "is cancelled") {
		ts.Fatalf("stderr: got %q, want that the build is cancelled", stderr.String())
	}
}

// fake is a Buildkite with one build, whose branch says how it goes: passed, older,
// elsewhere, wrong, machine, none, running.
type fake struct {
	server *httptest.Server

	mu       sync.Mutex
	requests int
	state    string
	branch   string
	runID    string
	mode     string
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/store" && r.Header.Get("Authorization") == "":
		w.Write(f.result())
		return
	case r.Header.Get("Authorization") != "Bearer bkua_secret":
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"message":"Authentication required"}`)
		return
	}
	f.requests++
	switch base := "/v2/organizations/gpu-mode/pipelines/kernelbot/builds"; {
	case !strings.HasPrefix(r.URL.Path, base):
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"message":"No pipeline found"}`)
	case r.Method == http.MethodPost:
		f.create(w, r)
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		f.state = "canceled"
		f.show(w)
	case strings.HasSuffix(r.URL.Path, "/artifacts"):
		f.artifacts(w)
	case strings.HasSuffix(r.URL.Path, "/download"):
		http.Redirect(w, r, strings.Replace(f.server.URL, "127.0.0.1", "localhost", 1)+"/store", http.StatusFound)
	case strings.HasSuffix(r.URL.Path, "/log"):
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, "\x1b[31mkbgen: error: unknown GPU\x1b[0m\n")
	case r.URL.Path == base:
		io.WriteString(w, "[")
		f.show(w)
		io.WriteString(w, "]")
	default:
		f.show(w)
	}
}

func (f *fake) create(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Branch string
		Env    map[string]string
	}
	json.NewDecoder(r.Body).Decode(&body)
	f.branch, f.runID, f.mode = body.Branch, body.Env["KERNELBOT_RUN_ID"], body.Env["KERNELBOT_MODE"]
	f.state = map[string]string{"running": "running", "none": "failed", "machine": "failed"}[f.branch]
	if f.state == "" {
		f.state = "passed"
	}
	w.WriteHeader(http.StatusCreated)
	f.show(w)
}

func (f *fake) show(w io.Writer) {
	json.NewEncoder(w).Encode(map[string]any{
		"number": 7, "state": f.state, "web_url": "https://buildkite.com/gpu-mode/kernelbot/builds/7",
		"jobs": []any{map[string]any{"id": "job-1", "type": "script", "step_key": "upload", "state": f.state,
			"exit_status": 1, "started_at": "2026-01-02T03:04:05Z", "agent_query_rules": []string{"queue=bootstrap"}}},
	})
}

func (f *fake) artifacts(w io.Writer) {
	if f.branch == "none" {
		io.WriteString(w, "[]")
		return
	}
	sum := sha1.Sum(f.result())
	json.NewEncoder(w).Encode([]any{map[string]any{
		"id": "a1", "job_id": "job-1", "state": "finished", "path": "result.json", "filename": "result.json",
		"file_size": len(f.result()), "sha1sum": hex.EncodeToString(sum[:]),
		"download_url": f.server.URL + "/v2/organizations/gpu-mode/pipelines/kernelbot/builds/7/artifacts/a1/download",
	}})
}

func (f *fake) result() []byte {
	run := func(name string, passed bool, report schema.Report) schema.Run {
		at := time.Unix(1e9, 0)
		return schema.Run{Name: name, EvalResult: schema.EvalResult{Start: at, End: at, Run: &schema.RunResult{Success: true, Passed: passed, Duration: 1.25, Result: report}}}
	}
	tests := schema.Report{{Key: "test-count", Value: "2"},
		{Key: "test.0.spec", Value: "size: 127; seed: 4242"}, {Key: "test.0.status", Value: "pass"}, {Key: "test.0.message", Value: "close"},
		{Key: "test.1.spec", Value: "size: 128; seed: 5236"}, {Key: "test.1.status", Value: "pass"}, {Key: "check", Value: "pass"}}
	r := &schema.Result{Success: true, RunID: f.runID, System: schema.SystemInfo{DeviceCount: 1}, Outcome: schema.NewOutcome(schema.OutcomePassed, "")}
	r.GPUType, r.Queue = "CPU_BK", "cpu"
	switch f.branch {
	case "older": // names neither
		r.GPUType, r.Queue = "", ""
		r.Runs = schema.Runs{run("test", true, tests)}
	case "elsewhere":
		r.GPUType, r.Queue = "L40S_BK", "test"
		r.Runs = schema.Runs{run("test", true, tests)}
	case "wrong":
		tests[5].Value = "fail"
		tests[6] = schema.Entry{Key: "test.1.error", Value: "mismatch at 3\\n\x1b[2Jgot 1, want 2"}
		r.Outcome = schema.NewOutcome(schema.OutcomeWrong, "")
		r.Runs = schema.Runs{run("test", false, tests)}
	case "machine":
		r.Success, r.Error = false, "no driver"
		r.Outcome = schema.NewOutcome(schema.OutcomeMachine, "no driver")
	default:
		r.Runs = schema.Runs{run("test", true, tests)}
	}
	if f.mode == schema.ModeLeaderboard && r.Outcome.Name == schema.OutcomePassed {
		var bench schema.Report
		for i, ns := range []string{"1500000.5", "6000000"} {
			key := fmt.Sprintf("benchmark.%d.", i)
			bench = append(bench, schema.Entry{Key: key + "spec", Value: "size: 1024"}, schema.Entry{Key: key + "mean", Value: ns},
				schema.Entry{Key: key + "err", Value: "1200"}, schema.Entry{Key: key + "best", Value: "1400000"}, schema.Entry{Key: key + "worst", Value: "7000000"})
		}
		bench = append(schema.Report{{Key: "benchmark-count", Value: "2"}}, append(bench, schema.Entry{Key: "check", Value: "pass"})...)
		r.Runs = append(r.Runs, run("benchmark", true, bench), run("leaderboard", true, bench))
	}
	data, err := r.Encode()
	if err != nil {
		panic(err)
	}
	return data
}
