package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/pipelines"
)

// selectionFlags say which steps of a pipeline run; the others are skipped.
type selectionFlags struct {
	Only         []string `placeholder:"KEY" help:"only this step and what it depends on, the rest is skipped; PREFIX* for several; may be repeated"`
	Tag          []string `placeholder:"TAG" help:"only steps with this tag and what they depend on; may be repeated"`
	ChangedSince string   `placeholder:"REVISION" help:"only steps whose files changed since this revision"`
	ChangedFiles string   `placeholder:"FILE" help:"only steps whose files are listed in FILE, one a line; - is stdin"`

	read   *pipelines.Selection // once: a list may come on standard input
	within context.Context      // of a command that answers signals itself; nil: signals end the process
}

// Limits on what says which files changed.
const (
	maxChangedBytes = 16 << 20
	gitLimit        = 2 * time.Minute
)

// selection reads the flags, asking git or a file once for what has changed.
func (f *selectionFlags) selection(env *cli.Env) (pipelines.Selection, error) {
	if f.read != nil {
		return *f.read, nil
	}
	s, err := f.ask(env)
	if err == nil {
		f.read = &s
	}
	return s, err
}

func (f *selectionFlags) ask(env *cli.Env) (s pipelines.Selection, err error) {
	s = pipelines.Selection{Keys: f.Only, Tags: f.Tag, ByChange: f.ChangedSince != "" || f.ChangedFiles != ""}
	var listed []byte
	switch {
	case f.ChangedSince != "" && f.ChangedFiles != "":
		return s, cli.Usagef("got --changed-since and --changed-files, want one of them")
	case strings.HasPrefix(f.ChangedSince, "-"):
		return s, cli.Usagef("--changed-since %q: want a revision", f.ChangedSince)
	case f.ChangedSince != "":
		within := f.within
		if within == nil {
			within = context.Background()
		}
		ctx, stop := context.WithTimeout(within, gitLimit)
		defer stop()
		// Of a renamed file both names; --relative is off whatever git is told.
		listed, err = git(ctx, env, "diff", "--no-relative", "--no-renames", "--no-ext-diff", "--name-only", "-z", "--merge-base", f.ChangedSince, "--")
		if err != nil {
			return s, cli.WithHint(fmt.Errorf("--changed-since: %w", err), "a shallow clone lacks the revision: git fetch --unshallow, or --changed-files")
		}
		listed = []byte(strings.ReplaceAll(string(listed), "\x00", "\n"))
	case f.ChangedFiles != "":
		if listed, err = cli.ReadInput(env.Stdin, f.ChangedFiles, maxChangedBytes); err != nil {
			return s, cli.Usagef("--changed-files: %v", err)
		}
	}
	for line := range strings.SplitSeq(string(listed), "\n") {
		if line = strings.TrimSuffix(line, "\r"); line != "" {
			s.Changed = append(s.Changed, line)
		}
	}
	return s, nil
}
