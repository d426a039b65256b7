package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Bounds on any JSON this package reads. They stand far above real documents
// and keep a hostile one from growing in memory.
const (
	maxDepth = 100
	maxNodes = 500_000
)

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindList
	kindObject
)

func (k kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "a list", "an object"}[k]
}

// A node is one JSON value with its object members in document order, which
// encoding/json's maps lose and whose names its structs match too loosely.
type node struct {
	kind    kind
	text    string // a string's content, a number's literal, "true" or "false"
	list    []node
	members []member
}

type member struct {
	name  string
	value node
}

// get returns the member of that exact name.
func (n *node) get(name string) (*node, bool) {
	for i := range n.members {
		if n.members[i].name == name {
			return &n.members[i].value, true
		}
	}
	return nil, false
}

// parseJSON reads one JSON document.
//
// A name that occurs twice in an object keeps its first place and its last
// value, as in Python. A lone surrogate becomes U+FFFD. NaN and Infinity,
// which Python's reader takes, are refused.
func parseJSON(data []byte) (*node, error) { return parseJSONContext(context.Background(), data) }

// parseJSONContext is parseJSON, and stops when ctx ends.
func parseJSONContext(ctx context.Context, data []byte) (*node, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not valid UTF-8")
	}
	p := parser{ctx: ctx, dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	n, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := p.dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("more data after the document's end, at byte %d", p.dec.InputOffset())
	}
	return &n, nil
}

type parser struct {
	ctx   context.Context
	dec   *json.Decoder
	nodes int
}

func (p *parser) value(depth int) (node, error) {
	tok, err := p.dec.Token()
	if err != nil {
		return node{}, p.syntax(err)
	}
	if p.nodes++; p.nodes > maxNodes {
		return node{}, fmt.Errorf("more than %d values", maxNodes)
	}
	if p.nodes%1024 == 0 && p.ctx.Err() != nil {
		return node{}, p.ctx.Err()
	}
	switch t := tok.(type) {
	case nil:
		return node{}, nil
	case bool:
		return node{kind: kindBool, text: fmt.Sprint(t)}, nil
	case json.Number:
		return number(t.String())
	case string:
		return node{kind: kindString, text: t}, nil
	case json.Delim:
		if depth == maxDepth {
			return node{}, fmt.Errorf("nested deeper than %d", maxDepth)
		}
		if t == '[' {
			return p.items(depth)
		}
		return p.object(depth)
	}
	return node{}, fmt.Errorf("unexpected token at byte %d", p.dec.InputOffset())
}

func (p *parser) items(depth int) (node, error) {
	n := node{kind: kindList}
	for p.dec.More() {
		item, err := p.value(depth + 1)
		if err != nil {
			return node{}, err
		}
		n.list = append(n.list, item)
	}
	_, err := p.dec.Token()
	return n, p.syntax(err)
}

func (p *parser) object(depth int) (node, error) {
	n := node{kind: kindObject}
	seen := map[string]int{}
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return node{}, p.syntax(err)
		}
		name, _ := tok.(string) // the decoder refuses any other kind here
		v, err := p.value(depth + 1)
		if err != nil {
			return node{}, err
		}
		if i, ok := seen[name]; ok {
			n.members[i].value = v
			continue
		}
		seen[name] = len(n.members)
		n.members = append(n.members, member{name, v})
	}
	_, err := p.dec.Token()
	return n, p.syntax(err)
}

// syntax gives the place of a syntax error and leaves its quotations out:
// documents are private.
func (p *parser) syntax(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("ends too early, at byte %d", p.dec.InputOffset())
	}
	return fmt.Errorf("syntax error after byte %d", p.dec.InputOffset())
}

// quoteJSON appends s as Python's json.dumps writes a string: ASCII only,
// everything else as \uXXXX, pairs of them beyond U+FFFF.
func quoteJSON(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
		case r >= ' ' && r <= '~':
			b.WriteByte(byte(r))
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
}

// notation is one of Python's two spellings of a document: they share the
// punctuation and differ in the scalars.
type notation struct {
	null  string
	bool  func(text string) string // of "true" or "false"
	quote func(b *strings.Builder, s string)
}

// jsonNotation is what Python's json.dumps writes.
var jsonNotation = notation{
	null:  "null",
	bool:  func(text string) string { return text },
	quote: quoteJSON,
}

// text returns n in the notation.
func (t *notation) text(n *node) string {
	var b strings.Builder
	t.write(&b, n)
	return b.String()
}

func (t *notation) write(b *strings.Builder, n *node) {
	switch n.kind {
	case kindNull:
		b.WriteString(t.null)
	case kindBool:
		b.WriteString(t.bool(n.text))
	case kindNumber:
		b.WriteString(n.text)
	case kindString:
		t.quote(b, n.text)
	case kindList:
		b.WriteByte('[')
		for i := range n.list {
			if i > 0 {
				b.WriteString(", ")
			}
			t.write(b, &n.list[i])
		}
		b.WriteByte(']')
	case kindObject:
		b.WriteByte('{')
		for i := range n.members {
			if i > 0 {
				b.WriteString(", ")
			}
			t.quote(b, n.members[i].name)
			b.WriteString(": ")
			t.write(b, &n.members[i].value)
		}
		b.WriteByte('}')
	}
}

func str(s string) node { return node{kind: kindString, text: s} }

func strs(list []string) node {
	n := node{kind: kindList}
	for _, s := range list {
		n.list = append(n.list, str(s))
	}
	return n
}

func boolean(v bool) node { return node{kind: kindBool, text: fmt.Sprint(v)} }
