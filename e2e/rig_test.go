// Package e2e drives the whole road with real processes: the stand-in, real
// buildkite-agents, and the commands as their users call them.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/fault"
)

var (
	root  string // of the repository
	bin   string // with the commands under test
	agent string // buildkite-agent
)

func TestMain(m *testing.M) {
	flag.Parse()
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
	if bin, err = os.MkdirTemp("", "kbgen-e2e-"); err != nil {
		return fail("making a directory", err)
	}
	defer os.RemoveAll(bin)
	build := exec.Command("go", "build", "-o", bin+"/", "./cmd/kbgen", "./cmd/kbrun", "./cmd/kblaunch", "./cmd/kblocal")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fail("building the commands", fmt.Errorf("%w\n%s", err, out))
	}
	find := exec.Command("sh", filepath.Join(root, "tools", "agent.sh"))
	find.Stderr = os.Stderr
	out, err := find.Output()
	if err != nil {
		return fail("finding buildkite-agent", err)
	}
	agent = strings.TrimSpace(string(out))
	return m.Run()
}

// A road is a stand-in with agents and a launcher pointed at it.
type road struct {
	*local.Server
	t   *testing.T
	dir string
}

// newRoad starts the stand-in with one agent for bootstrap and one for cpu.
func newRoad(t *testing.T, change ...func(*local.Options)) *road {
	t.Helper()
	r := &road{t: t, dir: t.TempDir()}
	opts := local.Options{
		Dir: r.dir, AgentBinary: agent, AgentPath: []string{bin}, AgentEnv: os.Environ(),
		Heartbeat: time.Second, CancelGrace: 2 * time.Second,
		Log: func(format string, args ...any) { t.Logf("stand-in: "+format, args...) },
	}
	for _, fn := range change {
		fn(&opts)
	}
	s, err := local.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	r.Server = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("closing the stand-in: %v", err)
		}
		if n := s.Leaks(); n != 0 {
			t.Errorf("%d requests carried a token to the artifact host", n)
		}
	})
	if _, err := s.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: kbgen.Bootstrap, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"bootstrap", "cpu"} {
		if err := s.StartAgents(queue, 1); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.AwaitAgents(ctx, 2); err != nil {
		t.Fatal(err)
	}
	return r
}

// A said is what a command left behind.
type said struct {
	status         int
	stdout, stderr string
}

// launch runs kblaunch against the stand-in.
func (r *road) launch(args ...string) said {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	return command(r.t, ctx, []string{
		"KBLAUNCH_API_URL=" + r.URL() + "/", "BUILDKITE_API_TOKEN=" + r.APIToken(),
		"BUILDKITE_ORG=gpu-mode", "BUILDKITE_PIPELINE=kernelbot",
	}, "", filepath.Join(bin, "kblaunch"), args...)
}

// submit launches a submission of the tiny task.
func (r *road) submit(file string, args ...string) said {
	r.t.Helper()
	dir := filepath.Join("testdata", "tiny")
	return r.launch(append([]string{"submit", dir, filepath.Join(dir, file), "--gpu", "CPU_BK"}, args...)...)
}

func command(t *testing.T, ctx context.Context, env []string, stdin, name string, args ...string) said {
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
	return said{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// want fails the test unless the command ended with status and printed all of
// parts on stdout.
func (s said) want(t *testing.T, status int, parts ...string) {
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

// jobs lists "key=state" of the only build's command jobs.
func (r *road) jobs() string {
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
func (r *road) results() int {
	r.t.Helper()
	b := r.Engine.Builds(engine.BuildFilter{})[0]
	all, err := r.Engine.BuildArtifacts(b.ID, true)
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

// addFault orders a fault, in the text form of package fault.
func (r *road) addFault(text string) {
	r.t.Helper()
	f, err := fault.Parse(text)
	if err == nil {
		_, err = r.Faults.Add(f)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}
