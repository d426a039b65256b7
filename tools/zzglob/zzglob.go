// Package zzglob is a stand-in for the module drjosh.dev/zzglob, written from
// the public description of Buildkite's glob syntax so that buildkite-agent
// can be built where that module's host cannot be reached. It holds only what
// buildkite-agent v3.138.0 calls: [Parse] with [ExpandTilde], [Pattern.Match],
// [Pattern.Glob] and [MultiGlob] with [TraverseSymlinks] and
// [WalkIntermediateDirs].
//
// Syntax:
//
//	\x       x itself, whatever x is
//	/        the path separator
//	?        one character, but not /
//	*        zero or more characters, but not /; leading dots included
//	**       zero or more characters, / included; /**/ also matches /
//	{a,b}    a or b; either may be empty, hold other syntax, and nest
//	[abc]    one of the listed characters; - stands for itself
//	[^abc]   one character that is neither listed nor /
//	~        the home directory, as the first path segment of the pattern
//
// Not covered, unlike the real module: Windows paths, file systems other than
// the host's, parallel walks, switching syntax elements off (but for ~),
// fs.SkipDir and fs.SkipAll from a callback, and .. after a wildcard, which
// matches nothing here. A ~ followed by anything but / stands for itself. A
// pattern may spread to at most 4096 brace and ** combinations.
//
// Source of the syntax: buildkite.com/docs/pipelines/configure/glob-pattern-syntax.
package zzglob

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// A Pattern is a parsed glob. It is never changed after [Parse], so several
// goroutines may use it.
type Pattern struct {
	// paths holds every combination of the braces; a path matches the pattern
	// when it matches one of them.
	paths [][]segment
}

type parseConfig struct{ tilde bool }

// A ParseOption changes what [Parse] takes for syntax.
type ParseOption func(*parseConfig)

// ExpandTilde says whether a leading ~ means the home directory (default
// true) or a file of that name.
func ExpandTilde(on bool) ParseOption {
	return func(c *parseConfig) { c.tilde = on }
}

// Parse reads a pattern. Paths in it are slash-separated; relative ones are
// resolved against the working directory of the later walk.
//
// Errors: a brace or class that is not closed, an empty class, a class with a
// / in it, a } without {, a \ at the end, a NUL byte, too many combinations, or no known
// home directory for a ~.
func Parse(pattern string, opts ...ParseOption) (*Pattern, error) {
	c := parseConfig{tilde: true}
	for _, o := range opts {
		o(&c)
	}
	if c.tilde {
		var err error
		if pattern, err = expandTilde(pattern); err != nil {
			return nil, err
		}
	}
	marked, err := markStars(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	flat, err := spread(marked)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	p := &Pattern{}
	for _, f := range flat {
		segs, err := compile(f)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		p.paths = append(p.paths, segs)
	}
	return p, nil
}

// expandTilde puts the home directory, escaped, in place of a first segment ~.
func expandTilde(pattern string) (string, error) {
	rest, ok := strings.CutPrefix(pattern, "~")
	if !ok || rest != "" && rest[0] != '/' {
		return pattern, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("pattern %q: expanding ~: %w", pattern, err)
	}
	return escape(home) + rest, nil
}

// Match reports whether the whole of path matches, by its text alone: nothing
// is looked up, and neither path nor pattern is resolved to an absolute one.
func (p *Pattern) Match(path string) bool {
	at := make([]state, len(p.paths))
	for i := range at {
		at[i].path = i
	}
	final := false
	for name := range strings.SplitSeq(path, "/") {
		final, at = p.step(at, name)
	}
	return final
}

// A state is a place in one of a pattern's paths: the segment at pos is to be
// matched next.
type state struct{ path, pos int }

// step takes one path element and returns whether the path may end with it,
// and the states in which it may go on.
func (p *Pattern) step(at []state, name string) (final bool, next []state) {
	add := func(s state) {
		if !slices.Contains(next, s) {
			next = append(next, s)
		}
	}
	for _, s := range at {
		segs := p.paths[s.path]
		if segs[s.pos].kind == anyDirs { // never last, never twice in a row
			add(s)
			s.pos++
		}
		switch {
		case !segs[s.pos].match(name):
		case s.pos == len(segs)-1:
			final = true
		default:
			add(state{s.path, s.pos + 1})
		}
	}
	return final, next
}
