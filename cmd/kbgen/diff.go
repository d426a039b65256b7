package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/generator/comparison"
	"github.com/gpu-mode/kbgen/pipelines"
)

// diffCmd compares what two pipelines mean: two files, or every golden of a
// git revision with that of the working tree.
type diffCmd struct {
	Older    string `arg:"" name:"old"`
	Newer    string `arg:"" name:"new" optional:""`
	Dir      string `default:"testdata/golden" placeholder:"DIR" help:"the goldens to compare"`
	JSON     bool   `xor:"form" help:"print JSON (kbgen schema diff)"`
	Markdown bool   `xor:"form" help:"print a table, for a comment on a pull request"`
}

// maxDocument bounds a file that is read, bytes.
const maxDocument = 16 << 20

func (c *diffCmd) Run(ctx context.Context, env *cli.Env) error {
	compared, err := c.compare(ctx, env)
	if err != nil {
		return err
	}
	if err := c.print(env.Stdout, compared); err != nil {
		return err
	}
	if compared.Differs() {
		return &cli.ExitError{Status: cli.ExitFailed} // as diff(1) says it
	}
	return nil
}

func (c *diffCmd) print(w io.Writer, compared generator.Comparison) error {
	var b bytes.Buffer
	switch {
	case c.JSON:
		if err := cli.PrintJSON(&b, compared); err != nil {
			return err
		}
	case c.Markdown:
		comparison.Markdown(&b, compared)
	case c.Newer != "":
		for _, change := range compared.Changes {
			fmt.Fprintln(&b, change.In())
		}
	default:
		comparison.Print(&b, compared)
		fmt.Fprintln(&b, compared.Summary())
	}
	_, err := w.Write(b.Bytes())
	return err
}

// compare reads both sides. Two files stand without their names: they are one
// pipeline, older and newer.
func (c *diffCmd) compare(ctx context.Context, env *cli.Env) (generator.Comparison, error) {
	if c.Newer == "" {
		return c.revision(ctx, env)
	}
	older, err := cli.ReadInput(env.Stdin, c.Older, maxDocument)
	if err != nil {
		return generator.Comparison{}, err
	}
	newer, err := cli.ReadInput(env.Stdin, c.Newer, maxDocument)
	if err != nil {
		return generator.Comparison{}, err
	}
	return generator.Compare(map[string][]byte{"": older}, map[string][]byte{"": newer})
}

// revision compares the goldens that a revision holds with those in the tree.
func (c *diffCmd) revision(ctx context.Context, env *cli.Env) (generator.Comparison, error) {
	var none generator.Comparison
	if strings.HasPrefix(c.Older, "-") {
		return none, cli.Usagef("%q: want a revision, or two files", c.Older)
	}
	listed, err := git(ctx, env, "ls-tree", "-r", "-z", "--name-only", c.Older, "--", c.Dir)
	if err != nil {
		return none, cli.WithHint(err, "kbgen diff OLD NEW compares two files")
	}
	older := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		if older[name], err = git(ctx, env, "show", c.Older+":./"+name); err != nil {
			return none, err
		}
	}
	newer := map[string][]byte{}
	err = filepath.WalkDir(c.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			newer[filepath.ToSlash(path)], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		return none, err
	}
	if len(older)+len(newer) == 0 {
		return none, fmt.Errorf("%s: no goldens, neither in %s nor here", c.Dir, c.Older)
	}
	return generator.Compare(older, newer)
}

func git(ctx context.Context, env *cli.Env, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env = env.Environ()
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}

// goldenCmd compares what is rendered for the scenarios in testdata/scenarios
// with testdata/golden, or rewrites it. See [generator.ParseScenario].
type goldenCmd struct {
	Pipelines []string `arg:"" optional:"" name:"pipeline"`
	Update    bool     `help:"rewrite them; refused if CI is true. make golden also rewrites what the tests of other packages compare with"`
	Dir       string   `default:"testdata" placeholder:"DIR" help:"the directory of scenarios and goldens"`
}

func (c *goldenCmd) Run(_ context.Context, env *cli.Env) error {
	if c.Update && env.Getenv("CI") == "true" {
		return cli.Usagef("--update: not in CI, where nobody looks at the diff")
	}
	for _, name := range c.Pipelines {
		if _, err := pipelines.Find(name); err != nil {
			return asUsage(err)
		}
	}
	want, err := renderGoldens(filepath.Join(c.Dir, "scenarios"), c.Pipelines)
	if err != nil {
		return err
	}
	dir := filepath.Join(c.Dir, "golden")
	have, err := readGoldens(dir, c.Pipelines)
	if err != nil {
		return err
	}
	drift := 0
	before, after := map[string][]byte{}, map[string][]byte{}
	all := maps.Clone(want)
	maps.Copy(all, have)
	for _, name := range slices.Sorted(maps.Keys(all)) {
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
			before[name], after[name] = have[name], want[name]
		}
	}
	compared, err := generator.Compare(before, after)
	if err != nil {
		return err
	}
	comparison.Print(env.Stdout, compared)
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
func renderGoldens(dir string, only []string) (map[string][]byte, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.env"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("no scenarios in %s", dir))
	}
	goldens := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s, err := generator.ParseScenario(filepath.Base(file), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		if len(only) > 0 && !slices.Contains(only, s.Pipeline.Name) {
			continue
		}
		for _, gpu := range s.GPUs() {
			if goldens[s.Golden(gpu)], err = s.Render(gpu); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, gpu, err)
			}
		}
	}
	return goldens, nil
}
