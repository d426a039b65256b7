package explain

import (
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

const (
	// maxRead bounds how much of a program's errors is looked at, in bytes from
	// its end.
	maxRead = 64 << 10
	// maxFrames bounds the frames of one traceback; the innermost are kept.
	maxFrames = 100
)

var (
	frameLine = text.Pattern(`^  File "(.+)", line ([0-9]{1,9})(?:, in (.*))?$`)
	errorLine = text.Pattern(`^([A-Za-z_][A-Za-z0-9_.]{0,200})(?:: (.*))?$`)
)

const tracebackHead = "Traceback (most recent call last):"

// Traceback reads the last exception that a Python program wrote to its
// standard error, and returns what it wrote before it. An exception that a
// worker process raised and its parent raises again has the worker's frames,
// which Python prints as its cause.
//
// What it reads may be made up: nothing in a traceback proves who wrote it.
func Traceback(stderr string) (r Raised, before string, found bool) {
	cut := stderr[max(0, len(stderr)-maxRead):]
	lines := strings.Split(strings.ReplaceAll(cut, "\r\n", "\n"), "\n")
	var all []traced
	for i := 0; i < len(lines); {
		t, next, ok := readTraceback(lines, i)
		if ok {
			all = append(all, t)
		}
		i = max(next, i+1)
	}
	if len(all) == 0 {
		return Raised{}, stderr, false
	}
	last := all[len(all)-1]
	first := last.begin
	if len(all) > 1 {
		// The cause of a worker's exception: the same error, one traceback earlier.
		if cause := all[len(all)-2]; cause.Type == last.Type && firstLine(cause.Message) == firstLine(last.Message) {
			last.Frames, first = append(last.Frames, cause.Frames...), cause.begin
		}
	}
	if first >= 2 && lines[first-1] == `"""` && strings.Contains(lines[first-2], "RemoteTraceback: ") {
		first -= 2 // the head of a worker's
	}
	last.Frames = last.Frames[max(0, len(last.Frames)-maxFrames):]
	return last.Raised, strings.Join(lines[:first], "\n"), true
}

// A traced is an exception and where its text begins.
type traced struct {
	Raised
	begin int
}

// readTraceback reads one traceback that begins in line i, and returns the line
// behind it, or behind what looked like one. A SyntaxError of the main file has
// frames and no head.
func readTraceback(lines []string, i int) (t traced, next int, ok bool) {
	t.begin = i
	if lines[i] == tracebackHead {
		i++
	} else if !frameLine().MatchString(lines[i]) {
		return t, 0, false
	}
	for ; i < len(lines) && strings.HasPrefix(lines[i], "  "); i++ { // frames, sources, marks below them
		m := frameLine().FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		line, _ := strconv.Atoi(m[2]) // nine digits at most
		t.Frames = append(t.Frames, Frame{File: m[1], Line: line, Function: m[3]})
	}
	if i == len(lines) {
		return t, i, false
	}
	m := errorLine().FindStringSubmatch(lines[i])
	if m == nil {
		return t, i, false
	}
	t.Type, t.Message = m[1], m[2]
	begin := i + 1
	for i++; i < len(lines) && !endsMessage(lines[i]); i++ {
	}
	t.Message = strings.TrimRight(strings.Join(append([]string{t.Message}, lines[begin:i]...), "\n"), "\n ")
	return t, i, true
}

// endsMessage reports whether a line behind an exception's first one is no more
// of its message.
func endsMessage(line string) bool {
	return line == `"""` || line == tracebackHead || strings.HasPrefix(line, "The above exception was ") ||
		strings.HasPrefix(line, "During handling of the above exception")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
