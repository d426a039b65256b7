package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

// Directives are what a submission's own text says of where it belongs.
type Directives struct {
	Leaderboard string   // name of the task; "" when it names none
	GPUs        []string // GPU types, in its order, each once
}

// ParseDirectives reads the lines "#!POPCORN NAME VALUE..." of a submission, in
// C++ "//!POPCORN". Like Kernelbot it looks at the unbroken block of comment
// lines that the text begins with, and no further: leaderboard takes one value,
// gpu and gpus several. Names are without case.
//
// Errors: a line that says nothing, an unknown name, one that comes twice, a
// value too few or too many; each with the line's number.
//
// Source: gpu-mode/kernelbot, src/libkernelbot/submission.py.
func ParseDirectives(source string) (Directives, error) {
	var d Directives
	number := 0
	for line := range strings.Lines(source) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "//") {
			break
		}
		rest, found := strings.CutPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "//"), "#"), "!POPCORN")
		if !found {
			continue
		}
		if err := d.add(strings.Fields(rest)); err != nil {
			return Directives{}, fmt.Errorf("line %d: !POPCORN: %w", number, err)
		}
	}
	return d, nil
}

func (d *Directives) add(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("got nothing, want leaderboard NAME or gpus NAME")
	}
	values := words[1:]
	switch name := strings.ToLower(words[0]); name {
	case "leaderboard":
		if len(values) != 1 {
			return fmt.Errorf("leaderboard: got %d names, want one", len(values))
		}
		if d.Leaderboard != "" {
			return fmt.Errorf("leaderboard: it is named twice")
		}
		d.Leaderboard = values[0]
	case "gpu", "gpus":
		if len(values) == 0 {
			return fmt.Errorf("%s: got no GPU type", name)
		}
		if d.GPUs != nil {
			return fmt.Errorf("%s: they are named twice", name)
		}
		for _, v := range values {
			if !slices.Contains(d.GPUs, v) {
				d.GPUs = append(d.GPUs, v)
			}
		}
	default:
		return fmt.Errorf("got %s, want leaderboard, gpu or gpus", text.Quote(words[0]))
	}
	return nil
}
