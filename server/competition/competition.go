// Package competition reads the files that describe Kernelbot's competitions,
// problems/*.yaml, with the tasks that they name.
package competition

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
	"gopkg.in/yaml.v3"
)

// A competition is one of Kernelbot's problems/*.yaml.
type competition struct {
	Name        string    `yaml:"name"`
	Deadline    string    `yaml:"deadline"`
	Description string    `yaml:"description"`
	Visibility  string    `yaml:"visibility"` // public or closed; "": as it is. Ours
	Problems    []problem `yaml:"problems"`
}

type problem struct {
	Directory string   `yaml:"directory"` // beside the file
	Name      string   `yaml:"name"`
	Deadline  string   `yaml:"deadline"` // "": the competition's
	GPUs      []string `yaml:"gpus"`     // none: the task's

	Visibility string `yaml:"visibility"` // "": the competition's. Ours
}

// Read loads a file and all its tasks. It reports every fault.
func Read(name string) ([]store.Board, error) {
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
		p.Deadline = cmp.Or(p.Deadline, c.Deadline)
		// Kernelbot takes anything else as a year from now, which nobody means.
		deadline, ok := ParseDeadline(p.Deadline)
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
		b := store.Board{Name: p.Name, Deadline: deadline, Description: t.Description, GPUs: p.GPUs, Task: t, Visibility: cmp.Or(p.Visibility, c.Visibility)}
		if len(b.GPUs) == 0 {
			b.GPUs = t.GPUs
		}
		boards = append(boards, b)
	}
	return boards, errors.Join(faults...)
}

// ParseDeadline reads Kernelbot's forms, and RFC 3339; UTC without a zone.
func ParseDeadline(s string) (time.Time, bool) {
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02T15:04", time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}
