package generator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agentparser "github.com/buildkite/go-pipeline"
	"github.com/buildkite/go-pipeline/ordered"
	"github.com/buildkite/go-pipeline/warning"
	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/pipeline"
)

// parseAsAgent reads a document as the agent does. Its warnings are errors.
func parseAsAgent(doc []byte) (*agentparser.Pipeline, error) {
	tree, p := new(yaml.Node), new(agentparser.Pipeline)
	if err := yaml.Unmarshal(doc, tree); err != nil {
		return nil, err
	}
	err := ordered.Unmarshal(tree, p) // what agentparser.Parse does with the tree
	if w := warning.As(err); w != nil {
		return nil, fmt.Errorf("the agent's parser warns: %w", w)
	}
	if err == nil && len(p.Steps) == 0 {
		err = errors.New("no steps")
	}
	return p, err
}

// agentEnv adds what the agent's parser wants of an environment.
type agentEnv struct{ variables }

func (agentEnv) Set(string, string) {}

// interpolatesAsAgent refuses a document that becomes anything but the steps
// that are wanted, in an empty environment or in a hostile one.
func interpolatesAsAgent(out []byte, want []node) error {
	text, err := write(documentOf(want), nil, YAML)
	if err != nil {
		return err
	}
	wanted, err := parseAsAgent(text)
	if err != nil {
		return err
	}
	wantJSON, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	for _, env := range []variables{{}, {hostile: true}} {
		p, err := parseAsAgent(out)
		if err != nil {
			return err
		}
		if err := p.Interpolate(agentEnv{env}, false); err != nil {
			return fmt.Errorf("interpolating with %s: %w", env, err)
		}
		got, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, wantJSON) {
			return fmt.Errorf("interpolating with %s changes the pipeline:\n%s", env, cmp.Diff(string(wantJSON), string(got)))
		}
	}
	return nil
}

// Whatever is rendered, for every pipeline, every row and both formats, the
// agent's parser takes without a warning and interpolates to what is wanted.
func TestAgentReadsWhatIsRendered(t *testing.T) {
	documents := 0
	for _, p := range pipelines.Pipelines {
		requests := []pipelines.Request{{}, {GPUs: pipelines.Fleet.On(), Run: pipelines.Run{ID: "a", Mode: "leaderboard", PayloadChunks: 3}, User: "Ada"}}
		for _, g := range pipelines.Fleet.On() {
			requests = append(requests,
				pipelines.Request{GPUs: pipelines.Table{g}},
				pipelines.Request{GPUs: pipelines.Table{stepRow(g)}, Secret: &pipelines.Run{ID: "s", PayloadChunks: 2}},
				pipelines.Request{GPUs: pipelines.Table{g}, Static: true})
		}
		for _, r := range requests {
			_, want, err := build(p, r)
			if err != nil || len(want) == 0 {
				continue // a pipeline that does not serve the row
			}
			for _, f := range []Format{YAML, JSON} {
				out, err := render(nil, want, p.Comment, f)
				if err != nil {
					t.Fatalf("%s: %v", p.Name, err)
				}
				if err := interpolatesAsAgent(out, want); err != nil {
					t.Errorf("%s for %v as %s: %v", p.Name, pipelines.Table(r.GPUs).Names(), f, err)
				}
				documents++
			}
		}
	}
	if documents < 100 {
		t.Errorf("%d documents were rendered, that proves too little", documents)
	}
}

// What the agent makes of a build with two runs: the names of variables stay
// names. Only the agent's parser can print it.
func TestInterpolatedGoldens(t *testing.T) {
	text, err := os.ReadFile("../testdata/scenarios/evaluate.secret.env")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseScenario("evaluate.secret.env", string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, gpu := range s.GPUs() {
		doc, err := s.Render(gpu)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parseAsAgent(doc)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Interpolate(buildEnv{s}, false); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		enc := yaml.NewEncoder(&got)
		enc.SetIndent(2)
		if err := errors.Join(enc.Encode(p), enc.Close()); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "interpolated", gpu+".secret.yml")
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s (-want +got), rewritten by -update:\n%s", golden, diff)
		}
	}
}

type buildEnv struct{ Scenario }

func (e buildEnv) Get(name string) (string, bool) { return e.Lookup(name) }
func (buildEnv) Set(string, string)               {}

func TestScenarioFaults(t *testing.T) {
	for _, tt := range []struct{ file, text, want string }{
		{"evaluate.env", "", "want PIPELINE.NAME.env"},
		{"evalute.default.env", "", `unknown pipeline "evalute"`},
		{"evaluate.default.env", "A=b\n\nnonsense", `evaluate.default.env:3: got "nonsense"`},
		{"evaluate.default.env", "--secret=x", `:1: got "--secret=x", want NAME=value, a flag or a comment`},
	} {
		if _, err := ParseScenario(tt.file, tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseScenario(%s, %q) = %v, want %q", tt.file, tt.text, err, tt.want)
		}
	}
}

// variables is an environment to interpolate with: empty, or one in which
// every name has a value that breaks whatever it gets into.
type variables struct{ hostile bool }

func (v variables) Get(string) (string, bool) {
	if v.hostile {
		return "$(hostile) ${HOSTILE} \"'\n- !!hostile {", true
	}
	return "", false
}

func (v variables) String() string {
	if v.hostile {
		return "a hostile environment"
	}
	return "an empty environment"
}

func valid(doc []byte) bool {
	_, err := pipeline.Parse(doc)
	return err == nil
}
