package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
)

type syncCmd struct {
	place  `embed:""`
	Files  []string `arg:"" name:"file"`
	Force  bool
	DryRun bool
}

// A competition is one of Kernelbot's problems/*.yaml.
type competition struct {
	Name        string    `yaml:"name"`
	Deadline    string    `yaml:"deadline"`
	Description string    `yaml:"description"`
	Problems    []problem `yaml:"problems"`
}

type problem struct {
	Directory string   `yaml:"directory"` // beside the file
	Name      string   `yaml:"name"`
	Deadline  string   `yaml:"deadline"` // "": the competition's
	GPUs      []string `yaml:"gpus"`     // none: the task's
}

func (c *syncCmd) Run(ctx context.Context, env *cli.Env) error {
	var boards []store.Board
	var faults []error
	for _, name := range c.Files {
		more, err := readCompetition(name)
		boards = append(boards, more...)
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	return c.with(ctx, func(s *store.Store) error {
		changes, err := s.SaveBoards(ctx, boards, store.SaveOptions{Force: c.Force, DryRun: c.DryRun})
		if err != nil {
			return err
		}
		for _, change := range changes {
			fmt.Fprintf(env.Stdout, "%s %s", change.What, change.Board)
			if len(change.Parts) > 0 {
				fmt.Fprintf(env.Stdout, ": %s", strings.Join(change.Parts, ", "))
			}
			fmt.Fprintln(env.Stdout)
		}
		if c.DryRun {
			fmt.Fprintln(env.Stderr, "kbserve: note: nothing was changed")
		}
		return nil
	})
}

// readCompetition loads a file and all its tasks, and says every fault there is.
func readCompetition(name string) ([]store.Board, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var c competition
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&c); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: it is empty", name)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %s", name, text.Line(err.Error(), 500))
	}
	if len(c.Problems) == 0 {
		return nil, fmt.Errorf("%s: problems: got none, want at least one", name)
	}
	var boards []store.Board
	var faults []error
	for i, p := range c.Problems {
		at := fmt.Sprintf("%s: problems[%d]", name, i)
		if p.Deadline == "" {
			p.Deadline = c.Deadline
		}
		// Kernelbot takes anything else as a year from now, which nobody means.
		deadline, ok := parseDeadline(p.Deadline)
		if !ok {
			faults = append(faults, fmt.Errorf("%s: deadline: got %s, want 2026-12-31 or 2026-12-31 18:00", at, text.Quote(p.Deadline)))
		}
		if p.Directory == "" {
			faults = append(faults, fmt.Errorf("%s: directory: want the task's folder", at))
			continue
		}
		t, err := task.LoadDir(filepath.Join(filepath.Dir(name), p.Directory))
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", at, err))
			continue
		}
		b := store.Board{Name: p.Name, Deadline: deadline, Description: t.Description, GPUs: p.GPUs, Task: t}
		if len(b.GPUs) == 0 {
			b.GPUs = t.GPUs
		}
		boards = append(boards, b)
	}
	return boards, errors.Join(faults...)
}
