package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/internal/schematest"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/pipeline"
)

// What the commands print with --json is what its published schema says.
func TestPublishedSchemas(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	older := write("older.yml", "env: {A: x}\nsteps: [{key: a, command: make}, {key: gone, command: make}]\n")
	newer := write("newer.yml", "env: {A: y}\nsteps: [{key: a, command: make, priority: 1}]\n")
	wrong := write("wrong.yml", "steps: [{command: make, artifact_path: out}]\n")
	node := write("node.yml", "version: 2\nvendor: nebius\n")
	platform := &jsonschema.Schema{Type: "string", Enum: []any{"host", "docker", "kubernetes"}}
	for _, d := range []struct {
		schematest.Document
		commands []string
	}{
		{schematest.Document{Name: "gpus", Title: "kbgen gpus --json: the GPU types, in the order of ALL", Type: reflect.TypeFor[[]gpuTypeJSON](),
			Types: map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[pipelines.Platform](): platform}}, []string{"gpus --json"}},
		{schematest.Document{Name: "kinds", Title: "kbgen kinds --json: the kinds of steps, and the pipelines", Type: reflect.TypeFor[kindsJSON]()}, []string{"kinds --json"}},
		{schematest.Document{Name: "queues", Title: "kbgen queues --json: the queues that steps are sent to", Type: reflect.TypeFor[[]queue](),
			Types: map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[pipelines.Platform](): platform}}, []string{"queues --json"}},
		{schematest.Document{Name: "plan", Title: "kbgen plan --json: the steps of a pipeline", Type: reflect.TypeFor[[]generator.PlannedStep]()},
			[]string{"plan evaluate --gpu ALL --json", "plan ci --json"}},
		{schematest.Document{Name: "diff", Title: "kbgen diff --json: what changed between pipelines", Type: reflect.TypeFor[generator.Comparison]()},
			[]string{"diff " + older + " " + newer + " --json", "diff " + older + " " + older + " --json"}},
		{schematest.Document{Name: "findings", Title: "kbgen check --json, kbgen vendor check --json, kblaunch queues --check FILE --json: what is wrong, and where",
			Type: reflect.TypeFor[[]schema.Finding]()}, []string{"check --json " + wrong, "vendor check --json " + node}},
		{schematest.Document{Name: "rules", Title: "kbgen check --rules --json: what pipelines are held to", Type: reflect.TypeFor[[]pipeline.Rule]()}, []string{"check --rules --json"}},
	} {
		var examples [][]byte
		for _, command := range d.commands {
			var stdout, stderr bytes.Buffer
			status := run(t.Context(), &cli.Env{
				Args: strings.Fields(command), LookupEnv: func(string) (string, bool) { return "", false }, Stdout: &stdout, Stderr: &stderr,
			})
			if stdout.Len() == 0 {
				t.Fatalf("kbgen %s ends with %d and prints nothing: %s", command, status, &stderr)
			}
			examples = append(examples, stdout.Bytes())
		}
		schematest.Check(t, d.Document, *update, examples...)
	}
}

// Every schema can be asked for, and says what it is of.
func TestSchemaCommand(t *testing.T) {
	kbgen := func(args ...string) (int, string) {
		var out bytes.Buffer
		status := run(t.Context(), &cli.Env{Args: args, LookupEnv: func(string) (string, bool) { return "", false }, Stdout: &out, Stderr: &out})
		return status, out.String()
	}
	status, list := kbgen("schema", "--list")
	if status != 0 || strings.Count(list, "\n") != len(schemaNames()) {
		t.Errorf("the list (status %d) has other schemas than %q:\n%s", status, schemaNames(), list)
	}
	for line := range strings.Lines(list) {
		name, title, _ := strings.Cut(strings.TrimSpace(line), " ")
		if status, text := kbgen("schema", name); status != 0 || !strings.Contains(text, strings.TrimSpace(title)) || strings.TrimSpace(title) == "" {
			t.Errorf("schema %s ends with %d, and does not say %q", name, status, title)
		}
	}
	if status, said := kbgen("schema", "resul"); status != cli.ExitUsage || !strings.Contains(said, `nearest is "result"`) {
		t.Errorf("an unknown schema ends with %d and says %q", status, said)
	}
}

// Each page names every flag of its command.
func TestPagesAreWhole(t *testing.T) {
	for _, fault := range kbgen().Undocumented() {
		t.Error(fault)
	}
}
