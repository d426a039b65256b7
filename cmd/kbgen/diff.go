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
)

// diffCmd compares what two pipelines mean: two files, or every golden of a
// git revision with that of the working tree.
type diffCmd struct {
	Older string `arg:""`
	Newer string `arg:"" optional:""`
	Dir   string `default:"testdata/golden"`
}

// maxDocument bounds a file that is read, bytes.
const maxDocument = 16 << 20

func (c *diffCmd) Run(ctx context.Context, env *cli.Env) error {
	changed := false
	var err error
	if c.Newer != "" {
		changed, err = c.files(env)
	} else {
		changed, err = c.revision(ctx, env)
	}
	if err == nil && changed {
		return &cli.ExitError{Status: cli.ExitFailed} // as diff(1) says it
	}
	return err
}

func (c *diffCmd) files(env *cli.Env) (bool, error) {
	older, err := readDocument(c.Older, env.Stdin)
	if err != nil {
		return false, err
	}
	newer, err := readDocument(c.Newer, env.Stdin)
	if err != nil {
		return false, err
	}
	return printDiff(env.Stdout, "", older, newer)
}

func readDocument(name string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxDocument+1))
	if err == nil && len(data) > maxDocument {
		err = fmt.Errorf("%s: more than %d bytes", name, maxDocument)
	}
	return data, err
}

// revision compares the goldens that a revision holds with those in the tree.
func (c *diffCmd) revision(ctx context.Context, env *cli.Env) (bool, error) {
	if strings.HasPrefix(c.Older, "-") {
		return false, cli.Usagef("%q: want a revision, or two files", c.Older)
	}
	listed, err := git(ctx, env, "ls-tree", "-r", "--name-only", c.Older, "--", c.Dir)
	if err != nil {
		return false, cli.WithHint(err, "kbgen diff OLD NEW compares two files")
	}
	names := strings.Fields(string(listed))
	known := map[string]bool{}
	changed := false
	for _, name := range names {
		known[name] = true
		older, err := git(ctx, env, "show", c.Older+":./"+name)
		if err != nil {
			return false, err
		}
		newer, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			return false, err
		}
		differs, err := printDiff(env.Stdout, name, older, newer)
		if err != nil {
			return false, err
		}
		changed = changed || differs
	}
	err = filepath.WalkDir(c.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !known[filepath.ToSlash(path)] {
			changed = true
			fmt.Fprintf(env.Stdout, "+ %s\n", path)
		}
		return err
	})
	return changed, err
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

// printDiff prints the changes from older to newer; a name heads them.
func printDiff(w io.Writer, name string, older, newer []byte) (bool, error) {
	if bytes.Equal(older, newer) {
		return false, nil
	}
	if newer == nil {
		fmt.Fprintf(w, "- %s\n", name)
		return true, nil
	}
	changes, err := generator.Diff(older, newer)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	if len(changes) > 0 && name != "" {
		fmt.Fprintln(w, name)
	}
	for _, c := range changes {
		fmt.Fprintln(w, c)
	}
	return len(changes) > 0, nil
}
