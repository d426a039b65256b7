package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	agentparser "github.com/buildkite/go-pipeline"
	"github.com/buildkite/go-pipeline/warning"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/cmd/internal/clitest"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/pipeline"
)

var update = flag.Bool("update", false, "rewrite what testdata/script compares with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"kbgen":           main,
		"kbgen-with-rows": withRows,
		"buildkite-agent": fakeAgent,
	})
}

// withRows is kbgen with a table of as many GPU types as KBGEN_TEST_ROWS says.
func withRows() {
	n, err := strconv.Atoi(os.Getenv("KBGEN_TEST_ROWS"))
	if err != nil {
		os.Exit(3)
	}
	row := pipelines.Fleet[1]
	pipelines.Fleet = make(pipelines.Table, n)
	for i := range pipelines.Fleet {
		g := row
		g.Name, g.Queue = fmt.Sprintf("%s_%d", g.Name, i), fmt.Sprintf("%s-%d", g.Queue, i)
		pipelines.Fleet[i] = g
	}
	main()
}

// fakeAgent is `buildkite-agent pipeline upload` without Buildkite: it reads
// its standard input with the agent's own parser and refuses what the agent
// refuses. With AGENT_STATUS it ends so instead.
func fakeAgent() {
	if status, err := strconv.Atoi(os.Getenv("AGENT_STATUS")); err == nil {
		fmt.Fprintln(os.Stderr, "agent: the upload was rejected")
		os.Exit(status)
	}
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		os.Exit(3)
	}
	if got := strings.Join(os.Args[1:], " "); !strings.HasPrefix(got, "pipeline upload") {
		switch {
		case strings.HasPrefix(got, "step get") && strings.Contains(os.Getenv("AGENT_STEPS"), os.Args[len(os.Args)-1]+" "):
			return // the build has the step
		case strings.HasPrefix(got, "step get"):
			os.Exit(1)
		}
		if path := os.Getenv("AGENT_CALLS"); path != "" {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = fmt.Fprintf(f, "%s: %s\n", got, strings.TrimSpace(string(input)))
			}
			if err != nil || f.Close() != nil {
				os.Exit(3)
			}
		}
		fmt.Fprintf(os.Stderr, "agent: %s\n", got) // kbgen shows it when it fails
		status, _ := strconv.Atoi(os.Getenv("AGENT_ARTIFACT_STATUS"))
		os.Exit(status)
	}
	n, documents := 0, 0
	for p, err := range agentparser.ParseAll(bytes.NewReader(input)) {
		if err != nil && (warning.As(err) == nil || strings.Contains(strings.Join(os.Args, " "), "--reject-parse-warnings")) {
			fmt.Fprintln(os.Stderr, "agent: pipeline parsing of \"(stdin)\" failed:", err)
			os.Exit(1)
		}
		n += len(p.Steps)
		documents++
	}
	fmt.Fprintf(os.Stderr, "agent: %s: %d documents, %d steps, payload %s\n", strings.Join(os.Args[1:], " "), documents, n, os.Getenv("KERNELBOT_PAYLOAD"))
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			repo, err := filepath.Abs("../..")
			env.Setenv("REPO", repo)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // a second for each process else
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": clitest.Exits,
		},
	})
}

func TestNoAgentAnywhere(t *testing.T) {
	variables := map[string]string{"PATH": t.TempDir(), "BUILDKITE_BIN_PATH": t.TempDir()}
	path, err := findAgent("", &cli.Env{LookupEnv: func(name string) (string, bool) { value, ok := variables[name]; return value, ok }})
	if hint := new(cli.HintError); path != "" || !errors.As(err, &hint) {
		t.Errorf("findAgent = %q, %v, want an error with a hint", path, err)
	}
}

func TestHelpFitsAScreen(t *testing.T) {
	for name, page := range help {
		lines := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
		if len(lines) > 30 {
			t.Errorf("help page %q has %d lines, want at most 30", name, len(lines))
		}
		for _, line := range lines {
			if len(line) > 80 {
				t.Errorf("help page %q: %d columns, want at most 80: %s", name, len(line), line)
			}
		}
	}
}

// What a failed render leaves behind is refused by the parser of the agent,
// whatever came before it.
func TestRefusedIsRefused(t *testing.T) {
	if strings.Count(refused, "\n") != 1 {
		t.Errorf("refused = %q, want one line", refused)
	}
	for _, before := range []string{"", "steps:\n- wait\n", "steps:\n"} {
		p, err := agentparser.Parse(strings.NewReader(before + refused))
		if err == nil || warning.As(err) != nil {
			t.Errorf("Parse(%q) = %+v, %v, want an error and no warning", before+refused, p, err)
		}
	}
}

// The bootstrap step is what people paste into Buildkite: it must be as good
// as what kbgen writes, and its command must be one that kbgen knows.
func TestBootstrapPipeline(t *testing.T) {
	doc, err := os.ReadFile("../../.buildkite/pipeline.yml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pipeline.Parse(doc); err != nil {
		t.Errorf("Validate = %v", err)
	}
	p, err := agentparser.Parse(bytes.NewReader(doc))
	if err != nil {
		t.Fatalf("Parse = %v, want no error and no warning", err)
	}
	if bytes.Contains(doc, []byte("$")) {
		t.Error("the bootstrap step holds a dollar sign, want nothing to interpolate")
	}
	step, ok := p.Steps[0].(*agentparser.CommandStep)
	if !ok || len(p.Steps) != 1 {
		t.Fatalf("got %d steps, the first a %T, want one command step", len(p.Steps), p.Steps[0])
	}
	words := strings.Fields(step.Command)
	if words[0] != "kbgen" {
		t.Fatalf("command is %q, want kbgen", step.Command)
	}
	var stdout, stderr bytes.Buffer
	status := run(context.Background(), &cli.Env{
		Args: append(words[1:], "--dry-run"),
		LookupEnv: func(name string) (string, bool) {
			if name == "KERNELBOT_GPU" {
				return "CPU_BK", true
			}
			return "", false
		},
		Stdout: &stdout, Stderr: &stderr,
	})
	want, err := os.ReadFile("../../testdata/golden/evaluate/CPU_BK.yml")
	if err != nil {
		t.Fatal(err)
	}
	if status != 0 || stdout.String() != string(want) {
		t.Errorf("%s --dry-run = %d, %q, stderr %q, want the steps for CPU_BK", step.Command, status, &stdout, &stderr)
	}
}
