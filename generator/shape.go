package generator

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// A table of five hundred GPU types gives five hundred steps that differ in
// their names: key, label, queue, GPU type. Parsing each of them three times
// over would take a hundred times as long as writing them. So the text of
// every step is compared line by line with those before it, names apart; the
// first of each shape is examined, in a document of such firsts, and the
// others are as good when
//
//   - their text is the same but for names, and those names are plain words
//     (see plain), which every reader takes for text and no rule of the step
//     format tells apart,
//   - the names written are the names wanted, and the rest is wanted to be the
//     same as in the first,
//   - no key stands twice in the whole document.
//
// What does not fit (a step of another form, a name that is no plain word, a
// dependency) is examined as it is.

// A reduction is a document with one step of each shape.
type reduction struct {
	document []byte
	want     []node
}

// A placeholder is a line whose value may differ between steps of one shape.
type placeholder struct {
	yaml, json string   // how the line begins
	path       []string // where the value stands in the tree
	words      bool     // several words may stand there
}

var placeholders = []placeholder{
	{"  - key: ", `      "key": "`, []string{"key"}, false},
	{"    label: ", `      "label": "`, []string{"label"}, true},
	{"      queue: ", `        "queue": "`, []string{"agents", "queue"}, false},
	{"      " + schema.EnvGPU + ": ", `        "` + schema.EnvGPU + `": "`, []string{"env", schema.EnvGPU}, false},
	{"      " + schema.EnvQueue + ": ", `        "` + schema.EnvQueue + `": "`, []string{"env", schema.EnvQueue}, false},
}

// reduce finds the shapes in a document.
func reduce(out []byte, want []node, f Format) (reduction, error) {
	whole := reduction{out, want}
	head, blocks, tail := split(out, f)
	if len(blocks) != len(want) {
		return whole, fmt.Errorf("wrote %d steps, want %d", len(blocks), len(want))
	}
	if len(blocks) == 1 || bytes.Contains(out, []byte("depends_on")) {
		return whole, nil
	}
	s := reduction{document: bytes.Clone(head)}
	firsts, keys := map[string]int{}, make(map[string]bool, len(blocks))
	var shape []byte
	var names []string
	for i, block := range blocks {
		shape, names = outline(shape[:0], names[:0], block, f)
		first, seen := firsts[string(shape)]
		if seen && !alike(&want[i], &want[first], names) {
			return whole, fmt.Errorf("steps[%d] does not read as wanted", i)
		}
		key := want[i].get("key").text
		if keys[key] {
			return whole, fmt.Errorf("two steps have the key %q", key)
		}
		keys[key] = true
		if !seen {
			firsts[string(shape)] = i
			s.add(block, want[i], f)
		}
	}
	s.document = append(s.document, tail...)
	return s, nil
}

func (s *reduction) add(block []byte, want node, f Format) {
	if f == JSON {
		if len(s.want) > 0 {
			s.document = append(bytes.TrimSuffix(s.document, []byte("\n")), ",\n"...)
		}
		s.document = append(append(s.document, bytes.TrimRight(block, ",\n")...), '\n')
	} else {
		s.document = append(s.document, block...)
	}
	s.want = append(s.want, want)
}

// split parts a document as write makes it into what stands before its steps,
// the lines of each, and what stands behind them.
func split(out []byte, f Format) (head []byte, blocks [][]byte, tail []byte) {
	first, last := []byte("  - "), []byte(nil)
	if f == JSON {
		first, last = []byte("    {\n"), []byte("  ]\n")
	}
	start, began := 0, false
	for at := 0; at < len(out); {
		line := out[at:]
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			line = line[:end+1]
		}
		switch {
		case bytes.HasPrefix(line, first):
			if began {
				blocks = append(blocks, out[start:at:at])
			} else {
				head, began = out[:at:at], true
			}
			start = at
		case began && last != nil && bytes.Equal(line, last):
			return head, append(blocks, out[start:at:at]), out[at:]
		}
		at += len(line)
	}
	if began {
		blocks = append(blocks, out[start:len(out):len(out)])
	}
	return head, blocks, nil
}

// outline appends a step's lines to shape, with names that may differ left
// out, and to names what was left out: one for each placeholder, empty where
// nothing was.
func outline(shape []byte, names []string, block []byte, f Format) ([]byte, []string) {
	names = append(names, make([]string, len(placeholders))...)
	for line := range bytes.SplitAfterSeq(block, []byte("\n")) {
		i, name := fill(line, names, f)
		if i < 0 {
			if f == JSON && string(line) == "    },\n" { // every step but the last
				line = []byte("    }\n")
			}
			shape = append(shape, line...)
			continue
		}
		names[i] = name
		shape = append(shape, 0, byte(i))
	}
	return shape, names
}

// fill finds the placeholder that a line is, and the plain name in it; -1 is none.
func fill(line []byte, names []string, f Format) (int, string) {
	for i, p := range placeholders {
		prefix, suffix := p.yaml, "\n"
		if f == JSON {
			prefix, suffix = p.json, "\",\n"
		}
		if len(line) <= len(prefix) || string(line[:len(prefix)]) != prefix || names[i] != "" {
			continue
		}
		name := string(line[len(prefix):])
		if f == JSON && !strings.HasSuffix(name, suffix) {
			suffix = "\"\n"
		}
		name, found := strings.CutSuffix(name, suffix)
		// 36 characters may be a UUID, which no key may look like; 100 is the
		// limit of keys and queues.
		if found && plain(name) && len(name) <= 100 && len(name) != 36 && (p.words || strings.IndexByte(name, ' ') < 0) {
			return i, name
		}
		return -1, ""
	}
	return -1, ""
}

// alike reports whether two steps are to be the same but for names, and
// a's names are those that were written.
func alike(a, b *node, names []string) bool {
	for i, p := range placeholders {
		if names[i] == "" {
			continue
		}
		n := a
		for _, name := range p.path {
			if n = n.get(name); n == nil {
				return false
			}
		}
		if n.text != names[i] {
			return false
		}
	}
	return same(a, b, nil, names)
}

// same compares two trees, but for the values of the placeholders that names fill.
func same(a, b *node, path []string, names []string) bool {
	if a.kind != b.kind || len(a.items) != len(b.items) || len(a.names) != len(b.names) {
		return false
	}
	if a.kind != mapping && a.kind != list {
		return a.text == b.text || filled(path, names)
	}
	for i := range a.items {
		at := path
		if a.kind == mapping {
			if a.names[i] != b.names[i] {
				return false
			}
			at = append(path, a.names[i])
		} else {
			at = append(path, "-")
		}
		if !same(&a.items[i], &b.items[i], at, names) {
			return false
		}
	}
	return true
}

func filled(path, names []string) bool {
	for i, p := range placeholders {
		if names[i] != "" && slices.Equal(p.path, path) {
			return true
		}
	}
	return false
}
