package pipeline

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/near"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A vertex is a moment in a build: a step done, or a group begun.
type vertex struct {
	name    string
	at      *yaml.Node // what makes it wait
	path    string
	waits   []*vertex // for these
	visited int       // 0 not yet, 1 on the way, 2 done
}

// graph checks the dependencies between all steps of the stream.
func (c *checker) graph() {
	g := grapher{c: c, done: map[*step]*vertex{}, begun: map[*step]*vertex{}}
	for _, d := range c.documents {
		for _, s := range d.steps {
			g.vertex(s)
		}
	}
	for _, d := range c.documents {
		var top []*step
		for _, s := range d.steps {
			if s.parent == nil {
				top = append(top, s)
			}
		}
		g.level(top, nil)
	}
	for _, d := range c.documents {
		for _, s := range d.steps {
			g.visit(g.done[s], nil)
		}
	}
}

type grapher struct {
	c           *checker
	done, begun map[*step]*vertex
}

func (g *grapher) vertex(s *step) {
	name := s.key
	if name == "" {
		name = s.path
		if s.kind == "wait" {
			name = "wait step"
		}
	}
	g.done[s] = &vertex{name: name, at: s.node, path: s.path}
	g.begun[s] = g.done[s]
	if s.kind == "group" {
		g.begun[s] = &vertex{name: name, at: s.node, path: s.path}
		g.done[s].waits = append(g.done[s].waits, g.begun[s])
	}
}

// level links the steps of one list. A step without depends_on waits for the
// last wait or block step before it, which waits for all before itself.
func (g *grapher) level(list []*step, group *vertex) {
	gate := group
	var before []*vertex
	for _, s := range list {
		begun, done := g.begun[s], g.done[s]
		if group != nil {
			begun.waits = append(begun.waits, group)
		}
		gates := s.kind == "wait" || s.kind == "block" && child(s.node, "input") == nil
		switch depends := child(s.node, "depends_on"); {
		case depends != nil:
			g.depend(s, begun, depends)
		case gates:
			begun.waits = append(begun.waits, before...)
			fallthrough
		default:
			if gate != nil {
				begun.waits = append(begun.waits, gate)
			}
		}
		if gates {
			gate, before = done, before[:0:0]
		} else {
			before = append(before, done)
		}
		if s.kind == "group" {
			g.level(s.children, begun)
			for _, inner := range s.children {
				done.waits = append(done.waits, g.done[inner])
			}
		}
	}
}

// depend links a step to those it names.
func (g *grapher) depend(s *step, begun *vertex, depends *yaml.Node) {
	for i, item := range items(depends) {
		path := s.path + ".depends_on"
		if depends.Kind == yaml.SequenceNode {
			path = index(path, i)
		}
		if item.Kind == yaml.MappingNode {
			item = child(item, "step")
			path += ".step"
		}
		key := scalarText(item)
		if key == "" {
			continue
		}
		other, known := g.c.keys[key]
		switch {
		case known && (other == s || other == s.parent):
			what := "itself"
			if other == s.parent {
				what = "the group it is in"
			}
			g.c.report("KB104", item, path, "got %q: the step depends on %s", key, what)
		case known:
			begun.waits = append(begun.waits, g.done[other])
		case !isVariable(key) && !g.c.variable:
			g.unknown(item, path, key)
		}
	}
}

func (g *grapher) unknown(item *yaml.Node, path, key string) {
	if on := g.c.severities; on["KB102"] == Off && on["KB105"] == Off && on["KB106"] == Off {
		return
	}
	if k := g.misspelt(key); k != "" {
		g.c.report("KB102", item, path, "no step has the key %q, nearest is %q", key, k)
		return
	}
	if g.c.opts.Complete || g.c.opts.First && !g.c.uploads() {
		g.c.report("KB106", item, path, "no step of the pipeline has the key %q: the build fails", key)
		return
	}
	g.c.report("KB105", item, path, "no step of this stream has the key %q", key)
}

// Limits of the search for what a dependency was meant to be: as many keys as a
// build may have jobs, and not for ever.
const (
	maxSearches   = 200
	maxSearchKeys = schema.MaxJobsPerBuild
)

// misspelt is the first key, in the order of the text, that differs from a
// dependency by one slip; "" is none.
func (g *grapher) misspelt(key string) string {
	if g.c.searches++; g.c.searches > maxSearches {
		return ""
	}
	seen := 0
	for _, d := range g.c.documents {
		for _, s := range d.steps {
			if s.key == "" {
				continue
			}
			if seen++; seen > maxSearchKeys {
				return ""
			}
			if n := len(s.key) - len(key); len(s.key) > 4 && n >= -1 && n <= 1 && misspelt(key, s.key) {
				return s.key
			}
		}
	}
	return ""
}

var uploadsMore = text.Pattern(`\bpipeline upload\b|\bkbgen upload\b`)

// uploads reports whether some step may bring further ones.
func (c *checker) uploads() bool {
	for _, d := range c.documents {
		for _, s := range d.steps {
			if s.kind != "command" {
				continue
			}
			unknown := slices.ContainsFunc(pluginsOf(s), func(p plugin) bool { return pluginTables[p.name].settings == nil })
			if unknown || uploadsMore().MatchString(commandText(s.node)) {
				return true
			}
		}
	}
	return false
}

// misspelt reports whether a word differs by one slip from another. Keys that
// differ in a digit are meant to differ.
func misspelt(word, known string) bool {
	if near.Distance(word, known) != 1 {
		return false
	}
	digits := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r < '0' || r > '9' {
				return -1
			}
			return r
		}, s)
	}
	return digits(word) == digits(known)
}

// visit looks for cycles, depth first. Each is reported where it is closed,
// once.
func (g *grapher) visit(v *vertex, way []*vertex) {
	if v.visited == 2 {
		return
	}
	if v.visited == 1 {
		g.cycle(way[slices.Index(way, v):])
		return
	}
	v.visited = 1
	way = append(way, v)
	for _, w := range v.waits {
		g.visit(w, way)
	}
	v.visited = 2
}

func (g *grapher) cycle(way []*vertex) {
	first := 0 // begin with the step that comes first in the text
	for i, v := range way {
		if v.at.Line < way[first].at.Line {
			first = i
		}
	}
	names := make([]string, 0, len(way)+1)
	for i := range len(way) + 1 {
		name := way[(first+i)%len(way)].name
		if len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	if len(names) > 12 {
		names = append(append(names[:5:5], "…"), names[len(names)-5:]...)
	}
	v := way[first]
	g.c.report("KB103", v.at, v.path, "waits for itself: %s", strings.Join(names, " → "))
}
