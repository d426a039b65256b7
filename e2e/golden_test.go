package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
)

// notHere are goldens without a container that cannot run on any machine, and
// why.
var notHere = map[string]string{
	"bootstrap/all.pinned.yml": "it expects a release, and this is none: cmd/kbgen's scripts show what is said",
	"ci/all.yml":               "it would run this test",
	"image/all.yml":            "it needs a docker engine, and pushes to a registry",
}

// The goldens whose steps run on the host run for real: here a whole bootstrap and
// a secret run, in TestSlowHostGoldensRun all of them.
func TestHostGoldensRun(t *testing.T) {
	hostGoldensRun(t, func(name string) bool { return name == "bootstrap/all.yml" || name == "evaluate/CPU_BK.secret.yml" })
}

func TestSlowHostGoldensRun(t *testing.T) {
	testenv.NeedSlow(t)
	hostGoldensRun(t, func(string) bool { return true })
}

func hostGoldensRun(t *testing.T, include func(name string) bool) {
	t.Parallel()
	dir := filepath.Join(root, "testdata", "golden")
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.yml"))
	if err != nil || len(files) < 50 {
		t.Fatalf("%d goldens in %s, %v", len(files), dir, err)
	}
	ran := 0
	for _, file := range files {
		name, err := filepath.Rel(dir, file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".interpolated.yml") || !onHost(t, file) {
			continue
		}
		ran++
		if !include(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if why := notHere[name]; why != "" {
				t.Skip(why)
			}
			t.Parallel()
			runGolden(t, file, name)
		})
	}
	if ran < 6 {
		t.Errorf("%d goldens need no container, want 6 at least", ran)
	}
}

// onHost reports whether no step of the pipeline needs a container.
func onHost(t *testing.T, file string) bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Steps []struct {
			Plugins []any
			Image   string
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, s := range doc.Steps {
		if s.Image != "" || len(s.Plugins) > 0 {
			return false
		}
	}
	return true
}

// runGolden runs one golden on the stand-in, in the environment of its
// scenario, and wants every job to pass, and every evaluation's verdict.
func runGolden(t *testing.T, file, name string) {
	env := scenarioEnv(t, name)
	args := []string{"run", file, "--json"}
	for variable, value := range env {
		args = append(args, "--env", variable+"="+value)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := command(t, ctx, []string{"KBLOCAL_AGENT=" + agent, "PATH=" + bin + ":" + os.Getenv("PATH")}, "", filepath.Join(bin, "kblocal"), args...)
	s.want(t, 0)
	var build struct {
		Jobs []struct {
			StepKey string `json:"step_key"`
			State   string `json:"state"`
		} `json:"jobs"`
		MetaData map[string]string `json:"meta_data"`
	}
	if err := json.Unmarshal([]byte(s.stdout), &build); err != nil {
		t.Fatalf("%v in:\n%s", err, s.stdout)
	}
	var runs, steps []string
	for _, j := range build.Jobs {
		steps = append(steps, j.StepKey+"="+j.State)
	}
	for key, outcome := range build.MetaData {
		if strings.HasPrefix(key, "outcome:") {
			runs = append(runs, strings.TrimPrefix(key, "outcome:")+"="+outcome)
		}
	}
	sort.Strings(runs)
	want := ""
	for _, id := range []string{env[schema.EnvRunID], env[schema.SecretEnv(schema.EnvRunID)]} {
		if id != "" && strings.Contains(strings.Join(steps, " "), "evaluate-") {
			want = strings.TrimSpace(want + " " + id + "=passed")
		}
	}
	if got := strings.Join(runs, " "); got != want || len(steps) < 2 {
		t.Errorf("jobs %q, outcomes %q, want %q", steps, got, want)
	}
}

// scenarioEnv is what the launcher sends in the golden's scenario, with
// payloads in the carriers that the scenario has.
func scenarioEnv(t *testing.T, name string) map[string]string {
	t.Helper()
	pipeline, rest, _ := strings.Cut(strings.TrimSuffix(name, ".yml"), string(filepath.Separator))
	scenario := "default"
	if _, after, ok := strings.Cut(rest, "."); ok {
		scenario = after
	}
	text, err := os.ReadFile(filepath.Join(root, "testdata", "scenarios", pipeline+"."+scenario+".env"))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{schema.EnvGPU: "CPU_BK", schema.EnvQueue: "cpu", schema.EnvRunID: "golden", schema.EnvMode: "test"}
	for line := range strings.Lines(string(text)) {
		variable, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(line, "#") && !strings.Contains(variable, "PAYLOAD") {
			env[variable] = value
		}
	}
	for prefix, mode := range map[string]string{schema.EnvPrefix: "test", schema.EnvSecretPrefix: "leaderboard"} {
		if env[prefix+"RUN_ID"] == "" {
			continue
		}
		chunks := 0
		for line := range strings.Lines(string(text)) {
			_, _ = fmt.Sscanf(line, prefix+"PAYLOAD_CHUNKS=%d", &chunks)
		}
		carry(env, prefix, encoded(t, mode), chunks)
	}
	return env
}

// carry puts a payload into the variables that a build would have.
func carry(env map[string]string, prefix, payload string, chunks int) {
	if chunks == 0 {
		env[prefix+"PAYLOAD"] = payload
		return
	}
	env[prefix+"PAYLOAD_CHUNKS"] = fmt.Sprint(chunks)
	env[prefix+"PAYLOAD_SHA256"] = fmt.Sprintf("%x", sha256.Sum256([]byte(payload)))
	size := len(payload)/chunks + 1
	for i := range chunks {
		env[fmt.Sprintf("%sPAYLOAD_%d", prefix, i)] = payload[min(i*size, len(payload)):min((i+1)*size, len(payload))]
	}
}

// encoded is the payload of a right submission of the tiny task.
func encoded(t *testing.T, mode string) string {
	t.Helper()
	def, err := task.LoadDir(tiny)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(tiny, "right.py"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := def.Payload(schema.File{Name: "right.py", Text: string(text)}, mode, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return payload
}
