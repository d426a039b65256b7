package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpu-mode/kbgen/cmd/internal/clitest"
	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

func TestMain(m *testing.M) {
	sandbox.Main()
	testscript.Main(m, map[string]func(){"kbrun": main})
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
	python := testenv.Python(t)
	tester, err := os.ReadFile("../../runner/testdata/eval.py")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files:               files,
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=0") // a second for each process else
			kbrun, _, _ := strings.Cut(e.Getenv("PATH"), ":")
			e.Setenv("PATH", e.Getenv("PATH")+":"+filepath.Dir(python)+":/usr/bin:/bin")
			// The machine may have a real agent, even beside python3.
			bare := filepath.Join(e.WorkDir, "without-agent")
			e.Setenv("WITHOUT_AGENT", kbrun+":"+bare)
			if err := errors.Join(os.Mkdir(bare, 0o755), os.Symlink(python, filepath.Join(bare, "python3"))); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(e.WorkDir, "eval.py"), tester, 0o644)
		},
		Condition: func(name string) (bool, error) {
			_, gpu := os.Stat("/dev/nvidiactl")
			_, amd := os.Stat("/sys/class/kfd/kfd/topology/nodes/1")
			switch name {
			case "slow":
				return slow, nil
			case "nvml":
				return device.HasNVML, nil
			case "gpu":
				return gpu == nil || amd == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    clitest.Exits,
			"payload":  payload,
			"outcome":  outcome,
			"deadline": deadline,
			"kept":     kept,
			"cmpdir":   cmpdir,
		},
	})
}

// deadline RUN COMMAND ARG… runs the command under a KERNELBOT_DEADLINE that
// falls into RUN: 2s, or longer where the machine is too busy to begin it in
// that time.
func deadline(ts *testscript.TestScript, neg bool, args []string) {
	for limit := 2 * time.Second; limit < 5*time.Minute; limit *= 2 {
		ts.Setenv(schema.EnvDeadline, limit.String())
		ts.Check(ts.Exec(args[1], args[2:]...))
		r, err := schema.DecodeResult([]byte(ts.ReadFile("result.json")))
		ts.Check(err)
		if r.Runs.Get(args[0]) != nil {
			return
		}
	}
	ts.Fatalf("no deadline falls into %s", args[0])
}

// payload MODE SUBMISSION [json|large|open] sets the variables that carry the
// script's eval.py and SUBMISSION, or with json writes payload.json. open: the
// run has no secret seed.
func payload(ts *testscript.TestScript, neg bool, args []string) {
	seed := int64(190482231)
	p := &schema.Payload{
		Main:    "eval.py",
		Sources: schema.Files{{Name: "eval.py", Text: ts.ReadFile("eval.py")}, {Name: "submission.py", Text: ts.ReadFile(args[1])}},
		Lang:    schema.LangPython, Mode: args[0], RankingBy: schema.RankLast, Seed: &seed,
		Tests:      []schema.Case{{{Name: "size", Value: schema.IntValue(1)}}, {{Name: "size", Value: schema.IntValue(2)}}},
		Benchmarks: []schema.Case{{{Name: "size", Value: schema.IntValue(64)}}},
	}
	if slices.Contains(args, "open") {
		p.Seed = nil
	}
	if slices.Contains(args, "json") {
		ts.Check(os.WriteFile(ts.MkAbs("payload.json"), []byte(p.JSON()), 0o644))
		return
	}
	if slices.Contains(args, "large") {
		noise := make([]byte, 200<<10)
		random := rand.NewChaCha8([32]byte{})
		random.Read(noise)
		p.Sources[1].Text += "# " + base64.StdEncoding.EncodeToString(noise) + "\n"
	}
	encoded, err := p.Encode()
	ts.Check(err)
	env, err := schema.PayloadEnv(encoded)
	ts.Check(err)
	if slices.Contains(args, "large") != (len(env) > 1) {
		ts.Fatalf("a payload of %d characters has %d variables", len(encoded), len(env))
	}
	for name, value := range env {
		ts.Setenv(name, value)
	}
}

// outcome FILE NAME RUN_ID RUN… compares a result with what it should say.
func outcome(ts *testscript.TestScript, neg bool, args []string) {
	r, err := schema.DecodeResult([]byte(ts.ReadFile(args[0])))
	ts.Check(err)
	got := []string{r.Outcome.Name, r.RunID}
	for _, run := range r.Runs {
		got = append(got, run.Name)
	}
	if !slices.Equal(got, args[1:]) {
		ts.Fatalf("%s says %q, want %q", args[0], got, args[1:])
	}
}

// kept COUNT DIR: so many results are kept there, and nothing else is.
func kept(ts *testscript.TestScript, neg bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[1]))
	ts.Check(err)
	for _, e := range entries {
		info, err := e.Info()
		ts.Check(err)
		if !strings.HasSuffix(e.Name(), ".kept") || info.Mode() != 0o600 {
			ts.Fatalf("%s: %s", e.Name(), info.Mode())
		}
	}
	if fmt.Sprint(len(entries)) != args[0] {
		ts.Fatalf("%d results are kept, want %s", len(entries), args[0])
	}
}

// cmpdir DIR DIR compares files.
func cmpdir(ts *testscript.TestScript, neg bool, args []string) {
	files, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "*"))
	ts.Check(err)
	for _, file := range files {
		want, err := os.ReadFile(file)
		ts.Check(err)
		got, err := os.ReadFile(filepath.Join(ts.MkAbs(args[1]), filepath.Base(file)))
		ts.Check(err)
		if !bytes.Equal(got, want) {
			ts.Fatalf("%s changed", filepath.Base(file))
		}
	}
}

func TestAgentGetsNoPayload(t *testing.T) {
	got := schema.WithoutPayload([]string{
		"KERNELBOT_PAYLOAD=x", "KERNELBOT_PAYLOAD_0=x", "KERNELBOT_SECRET_PAYLOAD=x", "KERNELBOT_SECRET_PAYLOAD_3=x",
		"KERNELBOT_SECRET_PAYLOAD_SHA256=x", "SUBMISSION_PAYLOAD=x", "KERNELBOT_RUN_ID=r", "BUILDKITE_JOB_ID=j",
	})
	if want := []string{"KERNELBOT_RUN_ID=r", "BUILDKITE_JOB_ID=j"}; !slices.Equal(got, want) {
		t.Errorf("the agent gets %q, want %q", got, want)
	}
}
