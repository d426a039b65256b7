package queuefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/schema/token"
)

// MaxSize is how long a queue file may be, in bytes.
const MaxSize = 1 << 20

// maxGPUs is how many GPUs one file may name, or agents where there are none:
// far more than anybody lends, and few enough to compare each with each.
const maxGPUs = 8192

// gpus counts what the file's groups stand for, without listing it.
func (f *File) gpus() int {
	sum := 0
	for i := range f.Nodes {
		for j := range f.Nodes[i].GPUs {
			g := &f.Nodes[i].GPUs[j]
			sum += max(g.Count, len(g.Indexes), len(g.UUIDs))
		}
	}
	return sum
}

// Decode reads one queue file; name is for its faults. It finds everything
// that can be found without a table of GPU types, and [Check] the rest.
//
// The file holds what could be read, so that Check may go on after errors
// here; it is nil where nothing could. Strict: unknown and repeated keys,
// anchors and tags are errors, and so is a second document.
func Decode(name string, doc []byte) (*File, []*schema.Finding) {
	unreadable := func(line int, got, want string) (*File, []*schema.Finding) {
		return nil, []*schema.Finding{{File: name, Line: line, Column: 1, Severity: schema.SeverityError, Got: got, Want: want}}
	}
	if len(doc) > MaxSize {
		return unreadable(1, fmt.Sprintf("%d bytes", len(doc)), fmt.Sprintf("at most %d", MaxSize))
	}
	dec := yaml.NewDecoder(bytes.NewReader(doc))
	var tree yaml.Node
	switch err := dec.Decode(&tree); {
	case errors.Is(err, io.EOF):
		return unreadable(1, "an empty file", "a queue file; kbgen vendor init writes one")
	case err != nil:
		line, words := text.YAMLError(err)
		return unreadable(max(1, line), "no YAML: "+words, "a queue file")
	}
	r := &report{File: &File{name: name, root: tree.Content[0], bad: map[string]bool{}}}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		r.wrong(nil, said("more than one document"), "one")
	}
	if !r.inspect(r.root, nil) || !r.validate() {
		return nil, sorted(r.faults)
	}
	r.root.Decode(r.File) // what has the wrong type is reported already, and stays 0
	if gpus := r.gpus(); gpus > maxGPUs {
		r.wrong(path{"nodes"}, said(fmt.Sprintf("%d GPUs", gpus)), "at most %d in one file", maxGPUs)
		return nil, sorted(r.faults)
	}
	r.consistent()
	return r.File, sorted(r.faults)
}

// inspect reports what no schema can see, and drops repeated and odd keys. It
// returns false where the document is better left alone: an alias may expand
// without end.
func (r *report) inspect(n *yaml.Node, p path) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.add(schema.SeverityError, n, p, "an anchor or alias", "the text written out")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		r.add(schema.SeverityError, n, p, "the tag "+n.Tag, "none")
		return false
	case n.ShortTag() == "!!float" && strings.ContainsAny(n.Value, "nN"): // .inf and .nan are in no JSON
		r.add(schema.SeverityError, n, p, n.Value, "a number")
		return false
	}
	r.secret(n, p)
	ok := true
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			ok = r.inspect(item, p.to(i)) && ok
		}
	case yaml.MappingNode:
		kept := n.Content[:0:0]
		seen := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			line, twice := seen[key.Value]
			switch {
			case r.secret(key, p): // its name is in no message
			case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
				r.add(schema.SeverityError, key, p, "the key "+written(key), "a name")
			case twice:
				r.add(schema.SeverityError, key, p.to(key.Value), fmt.Sprintf("the key %q a second time", key.Value), fmt.Sprintf("it once, as on line %d", line))
			default:
				seen[key.Value] = key.Line
				kept = append(kept, key, value)
				ok = r.inspect(value, p.to(key.Value)) && ok
			}
		}
		n.Content = kept
	}
	return ok
}

// hidden stands for a secret in what is said about the file after it was found.
const hidden = "..."

// secret reports a token in a text, or in a comment beside it, and takes it out.
// Queue files are passed around, and their faults are printed.
func (r *report) secret(n *yaml.Node, p path) bool {
	for _, comment := range []string{n.HeadComment, n.LineComment, n.FootComment} {
		if found := token.All(comment); len(found) > 0 {
			r.add(schema.SeverityError, n, p, found[0].What+" in a comment", "none: nothing secret belongs into a queue file, and this one is known now")
		}
	}
	if n.Kind != yaml.ScalarNode {
		return false
	}
	what := ""
	if found := token.All(n.Value); len(found) > 0 {
		what = found[0].What
	} else if len(p) > 0 && p[0] == "contacts" { // people and chats have short names
		what = token.Like(n.Value)
	}
	if what == "" {
		return false
	}
	r.add(schema.SeverityError, n, p, what, "none: nothing secret belongs into a queue file, and this one is known now")
	r.bad[p.String()] = true
	n.Value = hidden
	return true
}

// written is a value as the file has it, cut short.
func written(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return fmt.Sprintf("a list of %d", len(n.Content))
	case n.ShortTag() == "!!null":
		return "nothing"
	}
	if n.ShortTag() == "!!str" {
		return strconv.Quote(text.Shorten(n.Value, 60))
	}
	return text.Shorten(n.Value, 60)
}
