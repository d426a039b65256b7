package generator

import (
	"bytes"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/pipelines"
)

// Whatever text a scalar has, it is read back as it was, wherever it stands.
func FuzzWrite(f *testing.F) {
	for _, s := range []string{"", " ", "a\nb", "a\n\nb", "\ta", "a\n b", " a\nb", "a \nb", "a\nb\n", "- a", "? a", "&a", "*a", "!a", "#a", "a: b", "'", `"`, "%a", "@", "é", "\u2028", "a\r\nb", "0x1", "1e3", "2026-01-01", "<<", "=", "~", "a\x00b", strings.Repeat("long ", 40),
		"a", "yes", "No", "null", "a b", "a  b", "a -b", "e1", "off", "Evaluate on X", "y", "TRUE", "a-", "-a", "a #b", "a:b", "inf", "nan", "NaN"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		inner, doc := mapping(), mapping()
		inner.set("text", str(s))
		inner.set("list", strs([]string{s, "b"}))
		doc.set("steps", list(inner, inner))
		for _, format := range []Format{YAML, JSON} {
			out, err := write(doc, []string{"comment"}, format)
			if err != nil {
				return // bytes that are no text
			}
			var tree yaml.Node
			if err := yaml.Unmarshal(out, &tree); err != nil {
				if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
					return // refused later, by check
				}
				t.Fatalf("write(%q) gives what nobody reads (%v):\n%s", s, err, out)
			}
			if at := difference(tree.Content[0], (*yaml.Node)(&doc), "doc"); at != "" && strings.ToValidUTF8(s, "") == s && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f }) {
				t.Errorf("write(%q) reads otherwise at %s:\n%s", s, at, out)
			}
		}
	})
}

// Every document that differs in one value from a right one is refused.
func TestCheckRefusesEveryChange(t *testing.T) {
	p, err := pipelines.Find("evaluate")
	if err != nil {
		t.Fatal(err)
	}
	_, want, err := build(p, pipelines.Request{GPUs: many(2)})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []Format{YAML, JSON} {
		out, err := write(documentOf(want), nil, format)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(nil, out, want); err != nil {
			t.Fatalf("%s: check = %v", format, err)
		}
		lines := bytes.SplitAfter(out, []byte("\n"))
		for i, line := range lines {
			if format == JSON && i%5 > 0 {
				continue // the two formats share everything but the ends of lines
			}
			for _, spoil := range []func(string) string{
				func(s string) string { return strings.Replace(s, "h", "hh", 1) },
				func(s string) string { return strings.Replace(s, "1", "2", 1) },
				func(s string) string { return strings.Replace(s, "true", "false", 1) },
				func(s string) string { return strings.Replace(s, "_", "-", 1) },
				func(s string) string { return s + s },
				func(string) string { return "" },
			} {
				bad := spoil(string(line))
				if bad == string(line) {
					continue
				}
				doc := bytes.Join([][]byte{bytes.Join(lines[:i], nil), []byte(bad), bytes.Join(lines[i+1:], nil)}, nil)
				if err := check(nil, doc, want); err == nil {
					t.Errorf("%s: check takes line %d %q instead of %q", format, i+1, bad, line)
				}
			}
		}
	}
}
