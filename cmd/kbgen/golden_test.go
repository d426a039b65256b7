package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/pipeline"
)

const testdata = "../../testdata"

// What is rendered is what testdata/golden holds: nothing changed, nothing
// missing, no orphan.
func TestGoldens(t *testing.T) {
	var stdout bytes.Buffer
	env := &cli.Env{LookupEnv: func(string) (string, bool) { return "", false }, Stdout: &stdout, Stderr: &stdout}
	if err := (&goldenCmd{Dir: testdata, Update: *update}).Run(t.Context(), env); err != nil {
		t.Errorf("kbgen golden: %v\n%s\nrun: make golden", err, &stdout)
	}
}

// The test above can fail: it is told of every difference there may be.
func TestGoldenCommand(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden := func(args ...string) (int, string) {
		var out bytes.Buffer
		env := map[string]string{}
		if args[0] == "in CI" {
			env["CI"], args = "true", args[1:]
		}
		status := run(t.Context(), &cli.Env{
			Args:      append([]string{"golden", "--dir", dir}, args...),
			LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
			Stdout:    &out, Stderr: &out,
		})
		return status, out.String()
	}
	expect := func(what string, status int, said string, wantStatus int, want ...string) {
		t.Helper()
		if status != wantStatus {
			t.Errorf("%s: exit status %d, want %d\n%s", what, status, wantStatus, said)
		}
		for _, part := range want {
			if !strings.Contains(said, part) {
				t.Errorf("%s: said %q, want %q in it", what, said, part)
			}
		}
	}
	write("scenarios/evaluate.default.env", "# gpus: CPU_BK H100_BK\n")
	write("scenarios/evaluate.mode.env", "# gpus: CPU_BK\nKERNELBOT_MODE=test\n")
	status, said := golden("evaluate")
	expect("nothing there", status, said, exitDrift, "missing evaluate/CPU_BK.yml", "missing evaluate/CPU_BK.mode.yml", "3 of 3 goldens are not what is rendered")
	status, said = golden("in CI", "--update")
	expect("update in CI", status, said, cli.ExitUsage, "not in CI")
	status, said = golden("--update")
	expect("update", status, said, cli.ExitDone)
	status, said = golden("evaluate")
	expect("all there", status, said, cli.ExitDone, "3 goldens are what is rendered")

	doc, err := os.ReadFile(filepath.Join(dir, "golden/evaluate/H100_BK.yml"))
	if err != nil {
		t.Fatal(err)
	}
	write("golden/evaluate/H100_BK.yml", strings.Replace(string(doc), "shm-size: 8g", "shm-size: 4g", 1))
	write("golden/evaluate/GONE_BK.yml", "steps: [wait]\n")
	status, said = golden("evaluate")
	expect("drift", status, said, exitDrift, "changed evaluate/H100_BK.yml", `evaluate-h100.plugins.docker#v5.13.0.shm-size: "4g" → "8g"`, "orphan evaluate/GONE_BK.yml")
	status, said = golden("smoke")
	expect("another pipeline", status, said, cli.ExitDone)
	status, said = golden("evaluat")
	expect("no such pipeline", status, said, cli.ExitUsage, "nearest is evaluate")
	write("scenarios/evaluate.broken.env", "KERNELBOT_MODE\n")
	status, said = golden("evaluate")
	expect("a broken scenario", status, said, cli.ExitFailed, "evaluate.broken.env:1: got \"KERNELBOT_MODE\"")
}

// Every row has a golden in every pipeline that serves it.
func TestEveryRowHasItsGoldens(t *testing.T) {
	for _, p := range pipelines.Pipelines {
		for _, g := range pipelines.Fleet {
			if !p.NeedsGPUs || p.Serves != nil && !p.Serves(g) {
				continue
			}
			path := filepath.Join(testdata, "golden", p.Name, g.Name+".yml")
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s on %s has no golden: %v", p.Name, g.Name, err)
			}
		}
	}
}

// documents returns all goldens that are uploaded as they are.
func documents(t *testing.T) map[string][]byte {
	t.Helper()
	goldens, err := readGoldens(filepath.Join(testdata, "golden"), nil)
	if err != nil || len(goldens) < 50 {
		t.Fatalf("%d goldens, %v", len(goldens), err)
	}
	for name := range goldens {
		if strings.HasSuffix(name, ".interpolated.yml") {
			delete(goldens, name)
		}
	}
	return goldens
}

// Goldens show change, not correctness: here they pass the checks by
// themselves.
func TestGoldensAreValid(t *testing.T) {
	for name, doc := range documents(t) {
		if _, err := pipeline.Parse(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// No golden, and no scenario, carries a secret or what looks like a payload.
func TestGoldensHoldNoPayload(t *testing.T) {
	goldens, err := readGoldens(filepath.Join(testdata, "golden"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, doc := range goldens {
		if bytes.Contains(doc, []byte("not-a-payload")) {
			t.Errorf("%s: the value of a payload variable is in the pipeline", name)
		}
	}
}

// What lies in .buildkite is what kbgen renders.
func TestOwnPipelines(t *testing.T) {
	for file, golden := range map[string]string{"pipeline.yml": "bootstrap/all.yml", "ci.yml": "ci/all.yml"} {
		have, err := os.ReadFile(filepath.Join("../../.buildkite", file))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(testdata, "golden", golden))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, want) {
			t.Errorf(".buildkite/%s is not what golden %s holds, run: kbgen render %s > .buildkite/%s", file, golden, filepath.Dir(golden), file)
		}
	}
}

// Same input, same bytes, whatever the machine: another time zone, language,
// home, directory, number of processors and order of variables.
func TestSameBytesElsewhere(t *testing.T) {
	for _, args := range [][]string{
		{"render", "evaluate", "--gpu", "ALL", "--include-off"},
		{"render", "smoke", "--gpu", "ALL", "--format", "json"},
		{"plan", "isolation", "--gpu", "ALL"},
		{"explain", "evaluate-h100"},
	} {
		var first []byte
		for i := range 4 {
			env := []string{
				"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", "KERNELBOT_MODE=test", "KERNELBOT_USER=me", "KERNELBOT_SECRET_RUN_ID=s",
				"KERNELBOT_SECRET_MODE=private", "KERNELBOT_PAYLOAD_CHUNKS=3", "KERNELBOT_TIMEOUT_SECONDS=300",
				"TZ=" + []string{"UTC", "Asia/Kathmandu", "America/St_Johns", ":bad"}[i],
				"LANG=" + []string{"C", "de_DE.UTF-8", "tr_TR.UTF-8", "zh_CN.GB18030"}[i],
				"HOME=" + []string{"/", t.TempDir(), "/nonexistent", ""}[i],
				"GOMAXPROCS=" + []string{"1", "2", "7", "64"}[i],
				"GOGC=" + []string{"100", "10", "off", "1000"}[i],
			}
			rand.Shuffle(len(env), func(a, b int) { env[a], env[b] = env[b], env[a] })
			cmd := exec.CommandContext(t.Context(), "kbgen", args...)
			cmd.Env, cmd.Dir = env, []string{t.TempDir(), "/", os.TempDir(), "."}[i]
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("kbgen %s: %v\n%s", strings.Join(args, " "), err, &said)
			}
			if i == 0 {
				first = out
			}
			if !bytes.Equal(out, first) || len(out) == 0 {
				t.Errorf("kbgen %s with %q prints\n%s\nand elsewhere\n%s", strings.Join(args, " "), env, out, first)
			}
		}
	}
}

// The real agent takes every golden without a warning.
func TestGoldensPassTheAgent(t *testing.T) {
	path := testenv.Agent(t, os.Getenv("PATH"))
	// One process takes many documents in one stream; keys may repeat between
	// them, since nothing is sent.
	var names []string
	var stream bytes.Buffer
	for name, doc := range documents(t) {
		names = append(names, name)
		stream.WriteString("---\n")
		stream.Write(doc)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cmd := exec.CommandContext(ctx, path, "pipeline", "upload", "--dry-run", "--reject-parse-warnings", "--agent-access-token", "none", "--format", "yaml")
	cmd.Stdin = &stream
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	cmd.Dir = t.TempDir()
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s pipeline upload: %v\n%s", path, err, &said)
	}
	n := 0
	for dec := yaml.NewDecoder(bytes.NewReader(out)); ; n++ {
		var p struct{ Steps []any }
		if dec.Decode(&p) != nil {
			break
		}
		if len(p.Steps) == 0 {
			t.Errorf("document %d has no steps after the agent", n)
		}
	}
	if n != len(names) || strings.Contains(strings.ToLower(said.String()), "warn") {
		t.Errorf("the agent printed %d pipelines, want %d, and said:\n%s", n, len(names), &said)
	}
}
