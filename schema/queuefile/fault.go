package queuefile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/text"
)

// How bad a fault is.
const (
	Error = "error" // the file cannot be used
	Note  = "note"  // it can; somebody should know
)

// A Fault is one thing in a queue file that is wrong or worth knowing. Lines
// and columns count from 1.
type Fault struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Severity string `json:"severity"` // Error or Note
	Path     string `json:"path"`     // "nodes[0].gpus[1].count"; "" is the whole file
	Got      string `json:"got"`
	Want     string `json:"want"`
}

func (f *Fault) Error() string {
	where := f.Path
	if where != "" {
		where += ": "
	}
	return fmt.Sprintf("%s:%d:%d: %s: %sgot %s, want %s", f.File, f.Line, f.Column, f.Severity, where, f.Got, f.Want)
}

// Failed tells whether one of faults is an error.
func Failed(faults []*Fault) bool {
	return slices.ContainsFunc(faults, func(f *Fault) bool { return f.Severity == Error })
}

// sorted puts faults in the order of their files' lines; files stay in theirs.
func sorted(faults []*Fault) []*Fault {
	slices.SortStableFunc(faults, func(a, b *Fault) int {
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
	faults []*Fault
}

func (r *report) add(severity string, at *yaml.Node, p path, got, want string) {
	r.faults = append(r.faults, &Fault{r.name, at.Line, at.Column, severity, p.String(), got, want})
}

// wrong reports an error at the value of p.
func (r *report) wrong(p path, got any, format string, args ...any) {
	r.value(Error, p, got, fmt.Sprintf(format, args...))
}

// note reports what is odd but usable.
func (r *report) note(p path, got any, format string, args ...any) {
	r.value(Note, p, got, fmt.Sprintf(format, args...))
}

func (r *report) value(severity string, p path, got any, want string) {
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
