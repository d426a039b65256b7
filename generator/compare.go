package generator

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema/format"
)

// A Comparison is what differs between two sets of pipelines, by file. A change
// that many files share, as after an edit of what all steps have, is one change.
type Comparison struct {
	Files   int            `json:"files" jsonschema:"pipelines compared"`
	Changed int            `json:"files_changed" jsonschema:"of them, those that mean something else now, are new, or are gone"`
	Added   []string       `json:"added" jsonschema:"files"`
	Removed []string       `json:"removed" jsonschema:"files"`
	Changes []SharedChange `json:"changes" jsonschema:"each change once, with all places that have it"`
}

// A SharedChange is one change and all the places that have it. Its Step is
// empty but for a step that came or went as a whole.
type SharedChange struct {
	Kind string `json:"kind" jsonschema:"added, removed or changed"`
	Change
	Places []Place `json:"places"`
}

// A Place is a step in a file.
type Place struct {
	File string `json:"file" jsonschema:"empty when two files were given"`
	Step string `json:"step" jsonschema:"its key, or steps[3] without one; empty above the steps"`
}

// Compare finds what differs between the pipelines of two sets, by file name.
// Changes come in the order of the files' names, and within a file as [Diff]
// has them.
//
// Errors: a pipeline that cannot be read.
func Compare(older, newer map[string][]byte) (Comparison, error) {
	all := maps.Clone(older)
	maps.Copy(all, newer)
	c := Comparison{Files: len(all), Added: []string{}, Removed: []string{}, Changes: []SharedChange{}}
	at := map[Change]int{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		before, was := older[name]
		after, is := newer[name]
		switch {
		case !was:
			c.Added = append(c.Added, name)
			c.Changed++
			continue
		case !is:
			c.Removed = append(c.Removed, name)
			c.Changed++
			continue
		case bytes.Equal(before, after):
			continue
		}
		changes, err := Diff(before, after)
		if err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
		if len(changes) > 0 {
			c.Changed++
		}
		for _, change := range changes {
			place := Place{name, change.Step}
			if change.Path != "" {
				change.Step = ""
			}
			i, known := at[change]
			if !known {
				i = len(c.Changes)
				at[change] = i
				c.Changes = append(c.Changes, SharedChange{Kind: change.kind(), Change: change})
			}
			c.Changes[i].Places = append(c.Changes[i].Places, place)
		}
	}
	return c, nil
}

// Differs reports whether anything does.
func (c Comparison) Differs() bool { return c.Changed > 0 }

// Summary is one line: "1 change in 36 of 52 files".
func (c Comparison) Summary() string {
	if !c.Differs() {
		return fmt.Sprintf("no change in %s", format.Count(c.Files, "file"))
	}
	var parts []string
	if n := len(c.Changes); n > 0 {
		parts = append(parts, fmt.Sprintf("%s in %d of %s", format.Count(n, "change"), c.Changed-len(c.Added)-len(c.Removed), format.Count(c.Files, "file")))
	}
	if n := len(c.Added); n > 0 {
		parts = append(parts, format.Count(n, "file")+" added")
	}
	if n := len(c.Removed); n > 0 {
		parts = append(parts, format.Count(n, "file")+" removed")
	}
	return strings.Join(parts, ", ")
}

// Files lists the files that have the change, each once, in order.
func (s SharedChange) Files() []string {
	var files []string
	for _, p := range s.Places {
		files = append(files, p.File)
	}
	return slices.Compact(files)
}

// In returns the change with the step that all its places share, or "*" where
// they differ, so that it can be printed.
func (s SharedChange) In() Change {
	c := s.Change
	if c.Step == "" {
		c.Step = s.Places[0].Step
		for _, p := range s.Places {
			if p.Step != c.Step {
				c.Step = "*"
			}
		}
	}
	return c
}
