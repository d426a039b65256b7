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
	"slices"
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
			"exits": clitest.Exits, "state": state, "finish": finish, "fresh": fresh, "requests": requests, "interrupt": interrupt,
		},
	})
}

// state compares the state of the fake's first build: state canceled.
func state(ts *testscript.TestScript, neg bool, args []string) {
	f := ts.Value("fake").(*fake)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.builds) == 0 || f.builds[0].state != args[0] {
		ts.Fatalf("the builds are %+v, want the first %q", f.builds, args[0])
	}
}

// fresh forgets the fake's builds: fresh.
func fresh(ts *testscript.TestScript, neg bool, args []string) {
	f := ts.Value("fake").(*fake)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.builds = nil
}

// finish ends the fake's builds that run: finish passed.
func finish(ts *testscript.TestScript, neg bool, args []string) {
	f := ts.Value("fake").(*fake)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.builds {
		b.state, b.branch = args[0], args[0]
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
	if !strings.HasPrefix(stderr.String(), "kblaunch: error: interrupted: ") || strings.Contains(stderr.String(), "context canceled") {
		ts.Fatalf("stderr: got %q, want it to say that it was interrupted, in words", stderr.String())
	}
}

// fake is a Buildkite whose builds, from number 7 on, go as their branch says:
// passed, older, elsewhere, wrong, machine, canceled, none, running, waiting.
type fake struct {
	server *httptest.Server

	mu       sync.Mutex
	requests int
	builds   []*fakeBuild
}

type fakeBuild struct {
	number                        int
	state, branch                 string
	runID, mode, gpu, queue, user string
	retries                       int
}

const firstBuild = 7

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasPrefix(r.URL.Path, "/store/") && r.Header.Get("Authorization") == "":
		number, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/store/"))
		w.Write(f.builds[number-firstBuild].result())
		return
	case r.Header.Get("Authorization") != "Bearer bkua_secret":
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"message":"Authentication required"}`)
		return
	}
	f.requests++
	const base = "/v2/organizations/gpu-mode/pipelines/kernelbot/builds"
	rest, within := strings.CutPrefix(r.URL.Path, base)
	switch {
	case r.URL.Path == "/v2/organizations/gpu-mode/agents":
		io.WriteString(w, `[{"id":"1","name":"a","connection_state":"connected","meta_data":["queue=cpu"],"job":{"id":"x"}}]`)
		return
	case !within:
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"message":"No pipeline found"}`)
		return
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(f.create(r).show())
		return
	case rest == "":
		f.list(w, r)
		return
	}
	words := strings.SplitN(strings.TrimPrefix(rest, "/"), "/", 2)
	number, err := strconv.Atoi(words[0])
	if err != nil || number < firstBuild || number-firstBuild >= len(f.builds) {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"message":"No build found"}`)
		return
	}
	f.build(w, r, f.builds[number-firstBuild], strings.Join(words[1:], ""))
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	list := []any{}
	for _, b := range slices.Backward(f.builds) {
		q := r.URL.Query()
		matches := true
		for key, have := range b.metaData() {
			if want := q.Get("meta_data[" + key + "]"); want != "" {
				matches = matches && want == have
			}
		}
		if states := q["state[]"]; len(states) > 0 {
			matches = matches && slices.Contains(states, b.state)
		}
		if matches {
			list = append(list, b.show())
		}
	}
	json.NewEncoder(w).Encode(list)
}

func (f *fake) build(w http.ResponseWriter, r *http.Request, b *fakeBuild, what string) {
	switch {
	case what == "cancel":
		b.state = "canceled"
	case what == "artifacts":
		b.artifacts(w, f.server.URL)
		return
	case strings.HasSuffix(what, "/download"):
		http.Redirect(w, r, fmt.Sprintf("%s/store/%d", strings.Replace(f.server.URL, "127.0.0.1", "localhost", 1), b.number), http.StatusFound)
		return
	case strings.HasSuffix(what, "/log"):
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, "\x1b[31mkbgen: error: unknown GPU\x1b[0m\n")
		return
	case strings.HasSuffix(what, "/retry"):
		b.retries++
		b.state, b.branch = "passed", "passed"
		io.WriteString(w, `{"id":"job-2"}`)
		return
	}
	json.NewEncoder(w).Encode(b.show())
}

func (f *fake) create(r *http.Request) *fakeBuild {
	var body struct {
		Branch   string
		Env      map[string]string
		MetaData map[string]string `json:"meta_data"`
	}
	json.NewDecoder(r.Body).Decode(&body)
	b := &fakeBuild{
		number: firstBuild + len(f.builds), branch: body.Branch, runID: body.Env["KERNELBOT_RUN_ID"], mode: body.Env["KERNELBOT_MODE"],
		gpu: body.Env["KERNELBOT_GPU"], queue: body.Env["KERNELBOT_QUEUE"], user: body.MetaData["launcher"],
	}
	b.state = map[string]string{"running": "running", "waiting": "scheduled", "none": "failed", "machine": "failed", "canceled": "canceled"}[b.branch]
	if b.state == "" {
		b.state = "passed"
	}
	f.builds = append(f.builds, b)
	return b
}

func (b *fakeBuild) url() string {
	return fmt.Sprintf("https://buildkite.com/gpu-mode/kernelbot/builds/%d", b.number)
}

func (b *fakeBuild) metaData() map[string]string {
	return map[string]string{"run_id": b.runID, "gpu": b.gpu, "queue": b.queue, "mode": b.mode, "ranking": "mean", "launcher": b.user}
}

func (b *fakeBuild) show() map[string]any {
	job := map[string]any{"id": "job-1", "type": "script", "step_key": "upload", "state": b.state,
		"exit_status": 1, "agent_query_rules": []string{"queue=bootstrap"}}
	if b.state != "scheduled" {
		job["started_at"] = "2026-01-02T03:04:05Z"
	}
	return map[string]any{
		"number": b.number, "state": b.state, "web_url": b.url(), "meta_data": b.metaData(), "jobs": []any{job},
		"created_at": time.Now().UTC().Format(time.RFC3339),
	}
}

func (b *fakeBuild) artifacts(w io.Writer, server string) {
	if b.branch == "none" {
		io.WriteString(w, "[]")
		return
	}
	sum := sha1.Sum(b.result())
	json.NewEncoder(w).Encode([]any{map[string]any{
		"id": "a1", "job_id": "job-1", "state": "finished", "path": "result.json", "filename": "result.json",
		"file_size": len(b.result()), "sha1sum": hex.EncodeToString(sum[:]),
		"download_url": fmt.Sprintf("%s/v2/organizations/gpu-mode/pipelines/kernelbot/builds/%d/artifacts/a1/download", server, b.number),
	}})
}

func (b *fakeBuild) result() []byte {
	run := func(name string, passed bool, report schema.Report) schema.Run {
		at := time.Unix(1e9, 0)
		return schema.Run{Name: name, EvalResult: schema.EvalResult{Start: at, End: at, Run: &schema.RunResult{Success: true, Passed: passed, Duration: 1.25, Result: report}}}
	}
	tests := schema.Report{{Key: "test-count", Value: "2"},
		{Key: "test.0.spec", Value: "size: 127; seed: 4242"}, {Key: "test.0.status", Value: "pass"}, {Key: "test.0.message", Value: "close"},
		{Key: "test.1.spec", Value: "size: 128; seed: 5236"}, {Key: "test.1.status", Value: "pass"}, {Key: "check", Value: "pass"}}
	r := &schema.Result{Success: true, RunID: b.runID, System: schema.SystemInfo{DeviceCount: 1}, Outcome: schema.NewOutcome(schema.OutcomePassed, "")}
	r.GPUType, r.Queue = b.gpu, b.queue
	switch b.branch {
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
	case "machine", "canceled":
		r.Success, r.Error = false, "no driver"
		r.Outcome = schema.NewOutcome(schema.OutcomeMachine, "no driver")
	default:
		r.Runs = schema.Runs{run("test", true, tests)}
	}
	if b.mode == schema.ModeLeaderboard && r.Outcome.Name == schema.OutcomePassed {
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
