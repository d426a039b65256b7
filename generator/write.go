package generator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// A Format is a way to write a document. Both mean the same steps.
type Format string

const (
	// YAML is for people and goldens.
	YAML Format = "yaml"
	// JSON is for pipes: cut short, it parses nowhere.
	JSON Format = "json"
)

// A writer writes trees as YAML in block style, two spaces a level, the way
// yaml.v3 does, and ten times as fast: it knows what plain words look like and
// asks yaml.v3 for the form of any other scalar, once for each.
type writer struct {
	out     bytes.Buffer
	scalars map[string]string // text to its form
}

// write returns the whole document.
func write(doc node, comment []string, f Format) ([]byte, error) {
	w := &writer{scalars: map[string]string{}}
	if f == JSON {
		return writeJSON(doc)
	}
	for _, line := range comment {
		w.out.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	if err := w.mapping(&doc, 0); err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	return w.out.Bytes(), nil
}

// mapping writes one line or block per name. The cursor stands where the first
// name belongs; the others are indented by depth.
func (w *writer) mapping(n *node, depth int) error {
	for i := range n.items {
		if i > 0 {
			w.indent(depth)
		}
		if err := w.scalar(n.names[i], depth, false); err != nil {
			return err
		}
		w.out.WriteByte(':')
		if err := w.value(&n.items[i], depth); err != nil {
			return err
		}
	}
	return nil
}

// value writes what stands behind a name.
func (w *writer) value(n *node, depth int) error {
	switch {
	case n.kind == mapping && len(n.items) > 0:
		w.out.WriteByte('\n')
		w.indent(depth + 2)
		return w.mapping(n, depth+2)
	case n.kind == list && len(n.items) > 0:
		w.out.WriteByte('\n')
		for i := range n.items {
			w.indent(depth + 2)
			w.out.WriteByte('-')
			if err := w.item(&n.items[i], depth+2); err != nil {
				return err
			}
		}
		return nil
	}
	w.out.WriteByte(' ')
	return w.leaf(n, depth)
}

// item writes what stands behind a dash.
func (w *writer) item(n *node, depth int) error {
	w.out.WriteByte(' ')
	if n.kind == mapping && len(n.items) > 0 {
		return w.mapping(n, depth+2)
	}
	if n.kind == list && len(n.items) > 0 {
		return fmt.Errorf("a list in a list has no form here")
	}
	return w.leaf(n, depth)
}

func (w *writer) leaf(n *node, depth int) error {
	switch n.kind {
	case mapping:
		w.out.WriteString("{}")
	case list:
		w.out.WriteString("[]")
	case text:
		if err := w.scalar(n.text, depth, true); err != nil {
			return err
		}
	default:
		w.out.WriteString(n.text)
	}
	w.out.WriteByte('\n')
	return nil
}

// scalar writes text so that it is read back as that text.
func (w *writer) scalar(s string, depth int, block bool) error {
	if plain(s) {
		w.out.WriteString(s)
		return nil
	}
	if strings.IndexByte(s, '\n') >= 0 {
		if block && literal(s) {
			w.out.WriteString("|-")
			for line := range strings.SplitSeq(s, "\n") {
				w.out.WriteByte('\n')
				if line != "" {
					w.indent(depth + 2)
					w.out.WriteString(line)
				}
			}
			return nil
		}
		return jsonText(&w.out, s)
	}
	if !ascii(s) || s == "<<" { // yaml.v3 folds some, and reads the last as a merge
		return jsonText(&w.out, s)
	}
	form, ok := w.scalars[s]
	if !ok {
		data, err := yaml.Marshal(s)
		if err != nil {
			return err
		}
		form = strings.TrimSuffix(string(data), "\n")
		if strings.IndexByte(form, '\n') >= 0 {
			return jsonText(&w.out, s)
		}
		w.scalars[s] = form
	}
	w.out.WriteString(form)
	return nil
}

const spaces = "                                        "

func (w *writer) indent(depth int) {
	for ; depth > len(spaces); depth -= len(spaces) {
		w.out.WriteString(spaces)
	}
	w.out.WriteString(spaces[:depth])
}

// plain reports whether s is words that YAML reads as text without quotes: a
// letter first, then letters, digits, _ and -, words parted by one space, and
// no word that some reader takes for a boolean or null.
func plain(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case i > 0 && (c == '_' || c == '-' || c >= '0' && c <= '9'):
		case i > 0 && c == ' ' && i < len(s)-1 && s[i-1] != ' ' && s[i+1] != '-':
		default:
			return false
		}
	}
	return len(s) > 0 && len(s) <= 200 && !reserved(s) // YAML bounds names, at 1024
}

func reserved(s string) bool {
	if len(s) > 5 {
		return false
	}
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return true
	}
	return false
}

// literal reports whether s may be written as a block: lines of visible text,
// the first one with something at its start and the last one not empty.
func literal(s string) bool {
	if s[0] == ' ' || s[0] == '\n' || s[len(s)-1] == '\n' {
		return false
	}
	for line := range strings.SplitSeq(s, "\n") {
		if strings.HasSuffix(line, " ") {
			return false
		}
		if !ascii(line) {
			return false
		}
	}
	return true
}

// ascii reports whether s is visible ASCII and spaces.
func ascii(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func writeJSON(doc node) ([]byte, error) {
	var compact, out bytes.Buffer
	if err := compactJSON(&compact, &doc); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	if err := json.Indent(&out, compact.Bytes(), "", "  "); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func compactJSON(out *bytes.Buffer, n *node) error {
	switch n.kind {
	case number, boolean:
		out.WriteString(n.text)
		return nil
	case text:
		return jsonText(out, n.text)
	}
	brackets := "[]"
	if n.kind == mapping {
		brackets = "{}"
	}
	out.WriteByte(brackets[0])
	for i := range n.items {
		if i > 0 {
			out.WriteByte(',')
		}
		if n.kind == mapping {
			if err := jsonText(out, n.names[i]); err != nil {
				return err
			}
			out.WriteByte(':')
		}
		if err := compactJSON(out, &n.items[i]); err != nil {
			return err
		}
	}
	out.WriteByte(brackets[1])
	return nil
}

// jsonText writes text on one line in double quotes. YAML reads every escape of
// JSON's, too.
func jsonText(out *bytes.Buffer, s string) error {
	data, err := json.Marshal(s)
	out.Write(data)
	return err
}
