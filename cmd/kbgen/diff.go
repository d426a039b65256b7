package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/generator/comparison"
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
		if err := cli.PrintJSON(&b, comparison.New(compared)); err != nil {
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
