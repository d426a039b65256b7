package schema

import (
	"encoding/json"
	"fmt"
	"strings"
)

// A Severity says how much a finding matters. The zero value is off: nobody
// has graded the finding.
type Severity int

// Severities, in order.
const (
	SeverityOff     Severity = iota
	SeverityInfo             // worth knowing; many good documents have it
	SeverityNote             // usable; somebody should know
	SeverityWarning          // most likely not what was meant
	SeverityError            // refused, or different from what is written
)

var severityNames = [...]string{"off", "info", "note", "warning", "error"}

func (s Severity) String() string { return severityNames[s] }

// MarshalText writes the name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a name: off, info, note, warning or error.
func (s *Severity) UnmarshalText(text []byte) error {
	for i, name := range severityNames {
		if string(text) == name {
			*s = Severity(i)
			return nil
		}
	}
	return fmt.Errorf("got severity %q, want info, note, warning or error", text)
}

// A Finding is one thing in a document that is wrong or worth knowing, and
// where it stands: in a payload, a task, a queue file, a pipeline, a row of the
// table of GPU types. What is not known of it is left at its zero value.
//
// It says either what was found and what is wanted (Got, Want), or both in one
// sentence (Text).
type Finding struct {
	File     string   `json:"file"`          // as the caller named it; "" when it is no file
	Line     int      `json:"line"`          // from 1
	Column   int      `json:"column"`        // from 1
	Severity Severity `json:"severity"`      // off where findings are not graded: then each is an error
	Path     string   `json:"path"`          // to the value, "nodes[0].gpus[1].count"; "" is the whole document
	Got      string   `json:"got,omitempty"` // in words; quotes no submission
	Want     string   `json:"want,omitempty"`
	Rule     string   `json:"rule,omitempty"` // that found it, "KB102"
	Text     string   `json:"text"`           // in place of Got and Want; as JSON always there
}

// MarshalJSON writes the finding with its sentence as text, whichever way it
// says it.
func (f Finding) MarshalJSON() ([]byte, error) {
	type plain Finding
	f.Text = f.sentence()
	return json.Marshal(plain(f))
}

// Error returns the finding with its place, "node.yml:9:9: error: …". A line of
// a document without a file's name comes first as "line 9: ".
func (f *Finding) Error() string {
	if f.File == "" && f.Line == 0 {
		return f.Message()
	}
	if f.File == "" {
		return fmt.Sprintf("line %d: %s", f.Line, f.Message())
	}
	var b strings.Builder
	b.WriteString(f.File)
	for _, n := range []int{f.Line, f.Column} {
		if n > 0 {
			fmt.Fprintf(&b, ":%d", n)
		}
	}
	b.WriteString(": ")
	if f.Severity != SeverityOff {
		b.WriteString(f.Severity.String() + ": ")
	}
	return b.String() + f.Message()
}

// Message returns the finding without file, line and severity: its path, what
// is wrong there, and the rule.
func (f *Finding) Message() string {
	s := f.sentence()
	if f.Path != "" {
		s = f.Path + ": " + s
	}
	if f.Rule != "" {
		s += " [" + f.Rule + "]"
	}
	return s
}

func (f *Finding) sentence() string {
	if f.Text != "" {
		return f.Text
	}
	return fmt.Sprintf("got %s, want %s", f.Got, f.Want)
}
