package generator

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
)

// A Scenario is a build as its launcher makes it, kept to see what is rendered
// for it: the source of goldens.
type Scenario struct {
	Pipeline pipelines.Pipeline
	Name     string
	env      map[string]string
	choice   pipelines.Choice
	only     []string // what stands for GPU types; nil: every row served
}

// ParseScenario reads the scenario in a file called PIPELINE.NAME.env: variables
// of a build, one NAME=value a line. Lines "--static", "--relay",
// "--expect-version V", "--only KEY", "--tag TAG" and "--changed FILE", the last
// three also several times, are what kbgen render is asked for. A line
// "# gpus: A B" says for which GPU types it is rendered, "# gpus: ALL" that they
// share one document, "# gpus: none" that the pipeline needs none; without such
// a line there is a document for every row that the pipeline serves, those
// switched off included.
//
// Errors: a name or a line of another form, with file and line.
func ParseScenario(file, text string) (Scenario, error) {
	s := Scenario{env: map[string]string{}}
	pipeline, name, ok := strings.Cut(strings.TrimSuffix(file, ".env"), ".")
	if !ok {
		return s, fmt.Errorf("%s: want PIPELINE.NAME.env", file)
	}
	var err error
	if s.Pipeline, err = pipelines.Find(pipeline); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	s.Name = name
	for i, line := range strings.Split(text, "\n") {
		if list, ok := strings.CutPrefix(line, "# gpus: "); ok {
			s.only = strings.Fields(list)
		}
		switch variable, value, isVariable := strings.Cut(line, "="); {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "--") && s.flag(line):
		case isVariable && !strings.HasPrefix(line, "-"):
			s.env[variable] = value
		default:
			return s, fmt.Errorf("%s:%d: got %q, want NAME=value, a flag or a comment", file, i+1, line)
		}
	}
	return s, nil
}

// flag reads one flag, and reports whether it is one.
func (s *Scenario) flag(line string) bool {
	name, value, _ := strings.Cut(line, " ")
	wanted := &s.choice.Selection
	switch name {
	case "--static":
		s.choice.Static = true
	case "--relay":
		s.choice.Relay = true
	case "--expect-version":
		s.choice.Version = value
	case "--only":
		wanted.Keys = append(wanted.Keys, value)
	case "--tag":
		wanted.Tags = append(wanted.Tags, value)
	case "--changed":
		wanted.ByChange, wanted.Changed = true, append(wanted.Changed, value)
	default:
		return false
	}
	return (value != "") == (name != "--static" && name != "--relay")
}

// GPUs lists what the scenario is rendered for: names of GPU types, ALL, or
// "none".
func (s Scenario) GPUs() []string {
	if s.only != nil {
		return s.only
	}
	var names []string
	for _, g := range pipelines.Fleet {
		if s.Pipeline.Serves == nil || s.Pipeline.Serves(g) {
			names = append(names, g.Name)
		}
	}
	return names
}

// Golden is the slashed path of the golden for one of GPUs: PIPELINE/GPU.yml,
// with the scenario's name behind the GPU unless it is "default".
func (s Scenario) Golden(gpu string) string {
	if gpu == "none" || gpu == pipelines.All {
		gpu = "all"
	}
	if s.Name != "default" {
		gpu += "." + s.Name
	}
	return s.Pipeline.Name + "/" + gpu + ".yml"
}

// Render returns what kbgen render prints for one of GPUs.
//
// Errors: those of [pipelines.NewRequest] and [RenderParts].
func (s Scenario) Render(gpu string) ([]byte, error) {
	choice := s.choice
	switch gpu {
	case "none":
	case pipelines.All:
		choice.GPUs = []string{gpu}
	default:
		choice.GPUs, choice.IncludeOff = []string{gpu}, true
	}
	r, err := pipelines.NewRequest(s.Pipeline, choice, s.Lookup)
	if err != nil {
		return nil, err
	}
	documents, err := RenderParts(s.Pipeline, r, YAML, schema.MaxJobsPerUpload)
	return Join(documents), err
}

// Lookup finds a variable of the scenario's build.
func (s Scenario) Lookup(name string) (string, bool) {
	v, ok := s.env[name]
	return v, ok
}

// Join puts several documents into one stream of YAML.
func Join(documents [][]byte) []byte { return bytes.Join(documents, []byte("---\n")) }
