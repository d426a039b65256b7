// Package e2e takes submissions all the way to their verdicts with real
// processes: the stand-in for Buildkite, real buildkite-agents, and the commands
// as their users call them. It knows no code of the commands.
//
// Tests wait for events. [patience] ends a test that hangs; nothing is measured
// by it.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen"
	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/fault"
	"github.com/gpu-mode/kbgen/local/localtest"
	"github.com/gpu-mode/kbgen/schema"
)

// patience bounds every wait. It is longer than a busy machine needs for
// anything here.
const patience = 5 * time.Minute

var (
	root  string // of the repository
	bin   string // with the commands under test
	agent string // buildkite-agent
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait for other processes most of their time: more of them run
	// at once than there are cores.
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))) // a number, which the flag takes
	}
	os.Exit(run(m))
}

// run builds the commands and finds an agent, so that `go test ./e2e` works
// by itself.
func run(m *testing.M) int {
	fail := func(what string, err error) int {
		fmt.Fprintf(os.Stderr, "e2e: %s: %v\n", what, err)
		return 1
	}
	var err error
	if root, err = filepath.Abs(".."); err != nil {
		return fail("finding the repository", err)
	}
	if bin, err = testenv.BuildCommands(); err != nil {
		return fail("building the commands", err)
	}
	find := exec.Command("sh", filepath.Join(root, "tools", "agent.sh"))
	find.Stderr = os.Stderr
	out, err := find.Output()
	if err != nil {
		return fail("finding buildkite-agent", err)
	}
	agent = strings.TrimSpace(string(out))
	status := m.Run()
	if err := postgres.Stop(); err != nil {
		return fail("stopping PostgreSQL", err)
	}
	return status
}

// A rig is a stand-in with agents, and a launcher pointed at it.
type rig struct {
	*local.Server
	t      *testing.T
	dir    string
	agents int // started so far
}

// newRig starts the stand-in with one agent on queue bootstrap and one on cpu.
func newRig(t *testing.T, change ...func(*local.Options)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	opts := local.Options{
		Dir: r.dir, AgentBinary: agent, AgentPath: []string{bin}, AgentEnv: os.Environ(),
		Heartbeat: time.Second, CancelGrace: 2 * time.Second, LostAfter: patience,
		Log: func(format string, args ...any) { t.Logf("stand-in: "+format, args...) },
	}
	for _, fn := range change {
		fn(&opts)
	}
	t.Cleanup(func() { // after it was closed
		if r.Server == nil {
			return
		}
		if n := r.Leaks(); n != 0 {
			t.Errorf("%d requests carried a token to the artifact host", n)
		}
	})
	r.Server = localtest.Start(t, opts)
	if _, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: kbgen.Bootstrap, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	r.start("bootstrap", 1)
	r.start("cpu", 1)
	r.connected()
	return r
}

// start starts count agents more on a queue.
func (r *rig) start(queue string, count int) {
	r.t.Helper()
	if err := r.StartAgents(queue, count); err != nil {
		r.t.Fatal(err)
	}
	r.agents += count
}

// connected waits until all agents that were started can be handed jobs.
func (r *rig) connected() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.AwaitAgents(ctx, r.agents); err != nil {
		r.t.Fatal(err)
	}
}

// An output is what a command left behind.
type output struct {
	status         int
	stdout, stderr string
}

// launch runs kblaunch against the stand-in.
func (r *rig) launch(args ...string) output {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return command(r.t, ctx, []string{
		"KBLAUNCH_API_URL=" + r.URL() + "/", "BUILDKITE_API_TOKEN=" + r.APIToken(),
		"BUILDKITE_ORG=gpu-mode", "BUILDKITE_PIPELINE=kernelbot",
	}, "", filepath.Join(bin, "kblaunch"), args...)
}

// tiny is the directory of the tiny task and its submissions.
var tiny = filepath.Join("testdata", "tiny")

// submit launches a submission of the tiny task.
func (r *rig) submit(file string, args ...string) output {
	r.t.Helper()
	return r.launch(append([]string{"submit", tiny, filepath.Join(tiny, file), "--gpu", "CPU_BK"}, args...)...)
}

// impatientTask copies the tiny task with time limits of a second.
func impatientTask(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tiny)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "task.yml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	short := strings.ReplaceAll(string(text), "timeout: 120", "timeout: 1")
	if short == string(text) {
		t.Fatalf("%s has no limits to shorten", file)
	}
	if err := os.WriteFile(file, []byte(short), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// command runs a command to its end.
func command(t *testing.T, ctx context.Context, env []string, stdin, name string, args ...string) output {
	t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatalf("%s: %v", name, err)
	}
	return output{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// want fails the test unless the command ended with status and printed all of
// parts on stdout.
func (s output) want(t *testing.T, status int, parts ...string) {
	t.Helper()
	if s.status != status {
		t.Errorf("exit status %d, want %d\nstdout:\n%s\nstderr:\n%s", s.status, status, s.stdout, s.stderr)
		return
	}
	for _, part := range parts {
		if !strings.Contains(s.stdout, part) {
			t.Errorf("stdout lacks %q:\n%s", part, s.stdout)
		}
	}
}

func (r *rig) newest() engine.Build {
	r.t.Helper()
	all := r.Engine.Builds(engine.BuildFilter{})
	if len(all) == 0 {
		r.t.Fatal("there is no build")
	}
	return all[0]
}

// wait waits for a build's end.
func (r *rig) wait(b engine.Build) engine.Build {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	b, err := r.Engine.Wait(ctx, b.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// jobs lists "key=state" of the only build's command jobs.
func (r *rig) jobs() string {
	r.t.Helper()
	builds := r.Engine.Builds(engine.BuildFilter{})
	if len(builds) != 1 {
		r.t.Fatalf("got %d builds, want one", len(builds))
	}
	var out []string
	for _, j := range builds[0].Jobs {
		out = append(out, fmt.Sprintf("%s=%s", j.StepKey, j.State))
	}
	return strings.Join(out, " ")
}

// results counts the result.json artifacts of the only build.
func (r *rig) results() int {
	r.t.Helper()
	all, err := r.Engine.BuildArtifacts(r.newest().ID, true)
	if err != nil {
		r.t.Fatal(err)
	}
	n := 0
	for _, a := range all {
		if a.Path == "result.json" && a.State == engine.ArtifactFinished {
			n++
		}
	}
	return n
}

// addFault adds a fault, in the text form of package fault.
func (r *rig) addFault(text string) {
	r.t.Helper()
	f, err := fault.Parse(text)
	if err == nil {
		_, err = r.Faults.Add(f)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// onlyResult is the result in the document that submit --json prints of one run.
func onlyResult(t testing.TB, stdout string) *schema.Result {
	t.Helper()
	var doc struct {
		Runs []struct{ Result json.RawMessage }
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || len(doc.Runs) != 1 {
		t.Fatalf("%d runs, %v, in %q", len(doc.Runs), err, stdout)
	}
	result, err := schema.DecodeResult(doc.Runs[0].Result)
	if err != nil {
		t.Fatal(err)
	}
	return result
}
