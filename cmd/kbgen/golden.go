package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	agentparser "github.com/buildkite/go-pipeline"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/pipelines"
)

// goldenCmd compares what is rendered with testdata/golden, or rewrites it.
//
// A scenario is a file testdata/scenarios/PIPELINE.NAME.env: variables of a
// build, one NAME=value a line; lines that begin with -- are flags; a line
// "# gpus: A B" says for which GPU types, "# gpus: ALL" that they share one
// document, "# gpus: none" that the pipeline needs none; without it there is a
// document for every row that the pipeline serves, those switched off
// included. NAME default gives GPU.yml, any other GPU.NAME.yml.
type goldenCmd struct {
	Pipelines []string `arg:"" optional:"" name:"pipeline"`
	Update    bool
	Dir       string `default:"testdata"`
}

func (c *goldenCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Update && env.Getenv("CI") == "true" {
		return cli.Usagef("--update: not in CI, where nobody looks at the diff")
	}
	for _, name := range c.Pipelines {
		if _, err := pipelines.Find(name); err != nil {
			return asUsage(err)
		}
	}
	want, err := renderGoldens(ctx, filepath.Join(c.Dir, "scenarios"), c.Pipelines)
	if err != nil {
		return err
	}
	dir := filepath.Join(c.Dir, "golden")
	have, err := readGoldens(dir, c.Pipelines)
	if err != nil {
		return err
	}
	drift := 0
	for _, name := range names(want, have) {
		what, err := c.settle(filepath.Join(dir, name), have[name], want[name])
		if err != nil {
			return err
		}
		if what == "" {
			continue
		}
		drift++
		fmt.Fprintf(env.Stdout, "%s %s\n", what, name)
		if what == "changed" {
			if _, err := printDiff(env.Stdout, "", have[name], want[name]); err != nil {
				return err
			}
		}
	}
	if drift > 0 && !c.Update {
		return cli.WithHint(&cli.ExitError{Status: exitDrift, Err: fmt.Errorf("%d of %d goldens are not what is rendered", drift, len(want))},
			"kbgen golden --update rewrites them; look at the diff")
	}
	if !c.Update {
		fmt.Fprintf(env.Stdout, "%d goldens are what is rendered\n", len(want))
	}
	return nil
}

// settle says how a golden differs, and makes it what it should be when asked.
func (c *goldenCmd) settle(path string, have, want []byte) (string, error) {
	switch {
	case want == nil:
		if c.Update {
			return "orphan", os.Remove(path)
		}
		return "orphan", nil
	case have != nil && bytes.Equal(have, want):
		return "", nil
	}
	what := "changed"
	if have == nil {
		what = "missing"
	}
	if !c.Update {
		return what, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return what, err
	}
	return what, os.WriteFile(path, want, 0o644)
}

func names(sets ...map[string][]byte) []string {
	var all []string
	for _, set := range sets {
		for name := range set {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// readGoldens returns the files that are there, by slashed path below dir.
func readGoldens(dir string, only []string) (map[string][]byte, error) {
	found := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if pipeline, _, _ := strings.Cut(name, "/"); len(only) > 0 && !slices.Contains(only, pipeline) {
			return nil
		}
		found[name], err = os.ReadFile(path)
		return err
	})
	return found, err
}

// renderGoldens renders every scenario, by the path of its golden.
func renderGoldens(ctx context.Context, dir string, only []string) (map[string][]byte, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.env"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("no scenarios in %s", dir))
	}
	goldens := map[string][]byte{}
	for _, file := range files {
		s, err := readScenario(file)
		if err != nil {
			return nil, err
		}
		if len(only) > 0 && !slices.Contains(only, s.pipeline.Name) {
			continue
		}
		for _, gpu := range s.gpus() {
			doc, err := s.render(ctx, gpu)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, gpu, err)
			}
			name := s.pipeline.Name + "/" + s.file(gpu)
			goldens[name+".yml"] = doc
			if s.interpolated {
				if goldens[name+".interpolated.yml"], err = interpolate(doc, s.env); err != nil {
					return nil, fmt.Errorf("%s: %s: %w", file, gpu, err)
				}
			}
		}
	}
	return goldens, nil
}

// A scenario is a build as its launcher makes it.
type scenario struct {
	pipeline     pipelines.Pipeline
	name         string
	env          map[string]string
	flags        []string
	only         []string // GPU types; nil: every row served
	interpolated bool     // a second golden shows what the agent makes of it
}

func readScenario(file string) (scenario, error) {
	s := scenario{env: map[string]string{}}
	name, rest, ok := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".env"), ".")
	if !ok {
		return s, fmt.Errorf("%s: want PIPELINE.NAME.env", file)
	}
	var err error
	if s.pipeline, err = pipelines.Find(name); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	s.name = rest
	data, err := os.ReadFile(file)
	if err != nil {
		return s, err
	}
	for i, line := range strings.Split(string(data), "\n") {
		if list, ok := strings.CutPrefix(line, "# gpus: "); ok {
			s.only = strings.Fields(list)
		}
		if line == "# interpolated" {
			s.interpolated = true
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if strings.HasPrefix(line, "--") {
			s.flags = append(s.flags, strings.Fields(line)...)
			continue
		}
		variable, value, ok := strings.Cut(line, "=")
		if !ok {
			return s, fmt.Errorf("%s:%d: got %q, want NAME=value, a flag or a comment", file, i+1, line)
		}
		s.env[variable] = value
	}
	return s, nil
}

// gpus lists what stands for the GPU type in the names of the goldens.
func (s scenario) gpus() []string {
	if s.only != nil {
		return s.only
	}
	var names []string
	for _, g := range pipelines.Fleet {
		if s.pipeline.Serves == nil || s.pipeline.Serves(g) {
			names = append(names, g.Name)
		}
	}
	return names
}

// file is the golden's name without its ending.
func (s scenario) file(gpu string) string {
	if gpu == "none" || gpu == all {
		gpu = "all"
	}
	if s.name == "default" {
		return gpu
	}
	return gpu + "." + s.name
}

// render runs kbgen render as the scenario says.
func (s scenario) render(ctx context.Context, gpu string) ([]byte, error) {
	args := append([]string{"render", s.pipeline.Name}, s.flags...)
	switch gpu {
	case "none":
	case all:
		args = append(args, "--gpu", gpu)
	default:
		args = append(args, "--gpu", gpu, "--include-off")
	}
	var out, said bytes.Buffer
	status := run(ctx, &cli.Env{Args: args, LookupEnv: s.lookup, Stdout: &out, Stderr: &said})
	if status != cli.ExitDone {
		return nil, fmt.Errorf("kbgen %s: exit status %d: %s", strings.Join(args, " "), status, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}

func (s scenario) lookup(name string) (string, bool) {
	v, ok := s.env[name]
	return v, ok
}

// interpolate is what the agent makes of a document in the scenario's
// environment.
func interpolate(doc []byte, env map[string]string) ([]byte, error) {
	p, err := agentparser.Parse(bytes.NewReader(doc))
	if err != nil {
		return nil, err
	}
	if err := p.Interpolate(environment(env), false); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	err = errors.Join(enc.Encode(p), enc.Close())
	return out.Bytes(), err
}

type environment map[string]string

func (e environment) Get(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

func (e environment) Set(name, value string) { e[name] = value }
