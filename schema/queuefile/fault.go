package queuefile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Failed reports whether one of faults is an error.
func Failed(faults []*schema.Finding) bool {
	return slices.ContainsFunc(faults, func(f *schema.Finding) bool { return f.Severity == schema.SeverityError })
}

// sorted puts faults in the order of their files' lines; files stay in theirs.
func sorted(faults []*schema.Finding) []*schema.Finding {
	slices.SortStableFunc(faults, func(a, b *schema.Finding) int {
		if a.File != b.File {
			return 0
		}
		return cmp.Or(a.Line-b.Line, a.Column-b.Column, strings.Compare(a.Path, b.Path))
	})
	return faults
}

// A path leads from the root to a value: keys and indexes.
type path []any

// to is the path of something below p.
func (p path) to(steps ...any) path { return append(slices.Clip(p), steps...) }

func (p path) String() string {
	var b strings.Builder
	for i, step := range p {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		case string:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}

// at returns the node that p leads to, or the last one on the way that there is.
func (f *File) at(p path) *yaml.Node {
	n := f.root
	for _, step := range p {
		var next *yaml.Node
		switch step := step.(type) {
		case string:
			_, next = member(n, step)
		case int:
			if n.Kind == yaml.SequenceNode && step < len(n.Content) {
				next = n.Content[step]
			}
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

// member finds a mapping's key and its value; nil where there is none.
func member(n *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// A report gathers the faults of one file.
type report struct {
	*File
	faults []*schema.Finding
}

func (r *report) add(severity schema.Severity, at *yaml.Node, p path, got, want string) {
	r.faults = append(r.faults, &schema.Finding{
		File: r.name, Line: at.Line, Column: at.Column, Severity: severity, Path: p.String(), Got: got, Want: want,
	})
}

// wrong reports an error at the value of p.
func (r *report) wrong(p path, got any, format string, args ...any) {
	r.value(schema.SeverityError, p, got, fmt.Sprintf(format, args...))
}

// tooSmall reports an error that is none where nobody was promised anything.
func (r *report) tooSmall(p path, got any, format string, args ...any) {
	n := len(r.faults)
	if r.wrong(p, got, format, args...); len(r.faults) > n {
		if r.small == nil {
			r.small = map[*schema.Finding]bool{}
		}
		r.small[r.faults[n]] = true
	}
}

// Small reports whether a fault of this file says no more than that there are
// fewer cores, less memory, disk or network than a row promises to its jobs, than
// the guide for vendors asks for, or than the file gives away.
func (f *File) Small(fault *schema.Finding) bool { return f != nil && f.small[fault] }

// note reports what is odd but usable.
func (r *report) note(p path, got any, format string, args ...any) {
	r.value(schema.SeverityNote, p, got, fmt.Sprintf(format, args...))
}

func (r *report) value(severity schema.Severity, p path, got any, want string) {
	if !r.bad[p.String()] {
		r.add(severity, r.at(p), p, worded(got), want)
	}
}

// said is a value that is put into words already.
type said string

func worded(v any) string {
	switch v := v.(type) {
	case said:
		return string(v)
	case string:
		return fmt.Sprintf("%q", text.Shorten(v, 60))
	}
	return fmt.Sprint(v)
}
