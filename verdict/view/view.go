// Package view presents a result in HTML: the values that a template shows, the
// template, and its style sheet. The backend's pages and the stand-in's use it.
//
// It is pure. Its values hold text that testers and submissions wrote: it is
// cleaned and bounded here, and escaped by html/template. The surrounding page
// brings the colors, see report.css.
package view

import (
	"embed"
	"html/template"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict"
)

//go:embed report.html
var files embed.FS

// Style is the style sheet of the template "report".
//
//go:embed report.css
var Style []byte

// NewTemplate returns a template set with "report", "state" and "moment", which
// show a [Report], a [State] and a [Moment], and with the function count.
func NewTemplate(name string) *template.Template {
	return template.Must(template.New(name).Funcs(template.FuncMap{"count": format.Count}).ParseFS(files, "report.html"))
}

// A State is a state in words, with a color and a mark that only repeat what the
// words say.
type State struct {
	Text string
	Tone string // class: good, bad, warn, busy, idle, gone
	Mark string // class of the mark before the words: tick, cross, dot, ring, dash; "": none
}

// A Moment is a point in time; the zero value is never.
type Moment struct {
	Text string
	ISO  string // for the datetime attribute
	Full string
}

// A Term is a name with its value.
type Term struct{ Name, Text string }

// OutcomeState shows an outcome: a pass, a fault of the submission, or a fault of
// something else.
func OutcomeState(o schema.Outcome) State {
	words := strings.ReplaceAll(text.Line(o.Name, maxName), "-", " ")
	switch o.Fault {
	case schema.FaultNone:
		return State{"passed", "good", "tick"}
	case schema.FaultSubmission:
		return State{words, "bad", "cross"}
	}
	return State{words, "warn", "dash"}
}

// phaseState shows the status of a [verdict.Run].
func phaseState(status string) State {
	words := strings.ReplaceAll(status, "-", " ")
	switch status {
	case verdict.Passed:
		return State{words, "good", "tick"}
	case verdict.NotRun:
		return State{words, "idle", "dash"}
	}
	return State{words, "bad", "cross"}
}

// caseState shows what the tester said of one case.
func caseState(c *verdict.Case) State {
	switch {
	case c.Status == "":
		return State{}
	case c.Passed():
		return State{"passed", "good", "tick"}
	}
	return State{"failed", "bad", "cross"}
}

// Mode names a mode, or the phase of that mode, for people.
func Mode(mode string) string {
	if mode == schema.ModeLeaderboard {
		return "ranked"
	}
	return text.Line(mode, maxName)
}

// Sentence makes one sentence of a message.
func Sentence(s string) string {
	s = text.Line(s, 400)
	if s == "" {
		return ""
	}
	first := []rune(s)
	if 'a' <= first[0] && first[0] <= 'z' {
		first[0] -= 'a' - 'A'
	}
	if last := first[len(first)-1]; last != '.' && last != '?' && last != '!' && last != '…' {
		return string(first) + "."
	}
	return string(first)
}
