// Package explain turns what was seen of a submission that failed into what its
// author is told: an exception, the frames in his own files, his last prints,
// what was expected, which cases were not run. All bounds and all cleaning of
// schema.Explanation's texts are here.
//
// It is pure, and it blames nobody: whose fault an outcome is, package judge
// decides. Every text that comes in is hostile. A submission can raise, print
// and report whatever it likes, so that nothing here may change more than what
// its own author reads.
package explain

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Raised is an exception of Python's.
type Raised struct {
	Type    string // "ValueError", or with its module "torch.OutOfMemoryError"
	Message string // may have several lines

	// Frames are all frames, outermost first. A SyntaxError's last one is the
	// place that it is about and has no Function.
	Frames []Frame
}

// A Frame is one line of a traceback.
type Frame struct {
	File     string // as Python names it, with or without directories
	Line     int    // counted from 1
	Function string // "" for the place that a SyntaxError is about
}

// Text is "ValueError: message", on one line and unbounded.
func (r *Raised) Text() string {
	if r.Message == "" {
		return r.Type
	}
	return r.Type + ": " + r.Message
}

// Outcome returns the outcome that an exception in the submission means:
// syntax-error, missing-module, out-of-memory or exception. An error while one
// of its imports is loaded is its own, whatever file that lies in.
func (r *Raised) Outcome() string {
	name := r.Type[strings.LastIndexByte(r.Type, '.')+1:]
	switch name {
	case "SyntaxError", "IndentationError", "TabError":
		return schema.OutcomeSyntaxError
	case "ModuleNotFoundError":
		return schema.OutcomeMissingModule
	}
	if OutOfMemory(r.Text()) {
		return schema.OutcomeOutOfMemory
	}
	return schema.OutcomeException
}

// OutOfMemory reports whether an error's text is about memory, the machine's or
// the device's.
func OutOfMemory(s string) bool {
	marks := []string{"MemoryError", "std::bad_alloc", "OutOfMemoryError", "CUDA out of memory", "HIP out of memory", "cudaErrorMemoryAllocation"}
	return slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(s, mark) })
}

// Exception explains an exception to the author of the files own, whose texts
// are as he sent them: source lines are taken from there. A frame is his when
// its file has the name of one of them.
func Exception(r Raised, own schema.Files) *schema.Explanation {
	x := &schema.Explanation{Error: Line(r.Text())}
	for _, f := range r.Frames {
		name := path.Base(f.File)
		source, his := own.Get(name)
		if !his {
			continue
		}
		x.File, x.Line, x.Source = Line(name), f.Line, sourceLine(source, f.Line)
		shown := Line(name) + ":" + strconv.Itoa(f.Line)
		if f.Function != "" {
			shown += " in " + text.Line(f.Function, 80)
		}
		if x.Source != "" {
			shown += ": " + x.Source
		}
		x.Traceback = append(x.Traceback, Line(shown))
	}
	x.Traceback = x.Traceback[max(0, len(x.Traceback)-schema.MaxFrames):]
	return x
}

// sourceLine is line n of a source, counted from 1; "" when there is none.
func sourceLine(source string, n int) string {
	for line := range strings.Lines(source) {
		if n--; n == 0 {
			return Line(line)
		}
	}
	return ""
}

// Line is foreign text as one line of an explanation, within
// schema.MaxExplained characters.
func Line(s string) string { return text.Line(s, schema.MaxExplained-1) }

// Printed is the end of what a submission printed, within schema.MaxPrinted
// characters, "…" before it when something was cut.
func Printed(s string) string {
	s = strings.TrimRight(text.Lines(s), "\n\t ")
	cut := utf8.RuneCountInString(s) - schema.MaxPrinted
	if cut <= 0 {
		return s
	}
	for at := range s {
		if cut--; cut < -1 {
			return "…" + s[at:]
		}
	}
	return ""
}

// Withhold returns what of an explanation may be told of a run with a secret
// seed: the numbers of the cases that were not run. x may be nil.
func Withhold(x *schema.Explanation) *schema.Explanation {
	told := &schema.Explanation{Withheld: schema.WithheldWhy}
	if x != nil {
		told.NotRun = x.NotRun
	}
	return told
}

// maxNotRun bounds how many cases that were not run are listed one by one.
const maxNotRun = 100

// NotRun lists the cases first to count-1 of a kind, "test" or "benchmark",
// which were not run for one reason. Beyond a hundred the rest is one entry.
func NotRun(kind string, first, count int, why string) (list []schema.NotRun) {
	for i := first; i < count; i++ {
		name := kind + "." + strconv.Itoa(i)
		if i-first == maxNotRun && i+1 < count {
			return append(list, schema.NotRun{Case: name + " to " + kind + "." + strconv.Itoa(count-1), Why: Line(why)})
		}
		list = append(list, schema.NotRun{Case: name, Why: Line(why)})
	}
	return list
}
