package judge

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Seen is what was seen of a phase's commands, by their names in plan.Phase.
// Nil: it was not run, or the phase was ended from outside meanwhile.
type Seen struct {
	WarmUp, Version, Compile, Test, Import *Process
}

// How a process ended.
type How int

const (
	Exited How = iota // by itself, or by a signal that the runner did not send
	TimedOut
	OutOfTime // the job's time, not the command's
	Canceled  // the job was
)

// ExitTimeout is Kernelbot's code for a process that passed its limit.
const ExitTimeout = 114

// ReportLimit is the longest report that a harness may write, in bytes.
const ReportLimit = 1 << 20

// A Process is what is known of a process whose whole tree is gone.
type Process struct {
	How      How
	ExitCode int           // negative: the signal's number; ExitTimeout when the runner killed it
	Duration time.Duration // wall time; the limit when it passed that
	User     time.Duration // processor time, with the children that it waited for
	System   time.Duration
	Peak     int64 // resident memory of the largest of them, in bytes

	// OutOfMemory: the kernel ended some process for want of memory meanwhile.
	OutOfMemory bool
	// NotStarted is why the kernel refused a program that the compiler built;
	// "" when it ran. Nothing else is known then.
	NotStarted string

	Stdout, Stderr, Report Stream
	// Marked: the text that the command was watched for stood on stdout.
	Marked bool
	// Shared: harness.py told that the submission came into its process.
	Shared bool
	// Worker is how a worker of the harness's ended that still owed an answer, as
	// harness.py told: exit status, or the negative number of the signal. Nil: none.
	Worker *int
}

// workerLeft is harness.py's word for a worker that left too early.
var workerLeft = regexp.MustCompile(`w(-?[0-9]{1,3});`)

// Told reads what harness.py told: "1" when the submission came into its
// process, "w-11;" before it ended the harness because a worker had left.
func Told(words []byte) (shared bool, worker *int) {
	if m := workerLeft.FindSubmatch(words); m != nil {
		if code, err := strconv.Atoi(string(m[1])); err == nil && -64 <= code && code <= 255 {
			worker = &code
		}
	}
	return bytes.Contains(workerLeft.ReplaceAll(words, nil), []byte("1")), worker
}

// Failed reports whether a tool did not do its work.
func (p *Process) Failed() bool { return p.How != Exited || p.ExitCode != 0 }

// A Stream is the beginning and the end of what a process wrote, and how much
// it was.
type Stream struct {
	Head     []byte
	Tail     []byte // the last bytes of what Head does not hold; nil when it holds all
	Size     int64  // bytes in all
	Newlines int    // in all; "\n", "\r\n" and "\r", as Python's text mode reads them
}

// Whole reports whether everything was kept.
func (s *Stream) Whole() bool { return s.Size == int64(len(s.Head)) }

// End returns the end of what was kept: all of it where nothing is missing.
func (s *Stream) End() string {
	if s.Whole() {
		return s.Decoded()
	}
	if int64(len(s.Head)+len(s.Tail)) == s.Size {
		return string(slices.Concat(s.Head, s.Tail))
	}
	return string(s.Tail)
}

// Decoded returns the beginning of what was kept: bytes that are not UTF-8 as U+FFFD, one each.
func (s *Stream) Decoded() string {
	head := s.Head
	if !s.Whole() { // do not show half a character as damage
		for i := 1; i < utf8.UTFMax && i < len(head); i++ {
			if utf8.RuneStart(head[len(head)-i]) {
				if !utf8.FullRune(head[len(head)-i:]) {
					head = head[:len(head)-i]
				}
				break
			}
		}
	}
	return string([]rune(string(head)))
}

// textLimit is Kernelbot's limit on shown output, in characters; textSlack of
// it is kept for the line that says what is missing.
const (
	textLimit = 16384
	textSlack = 100
)

// Text returns the stream under Kernelbot's limit: whole lines while their
// characters, line ends and textSlack stay within textLimit, then one line
// "[...] N lines omitted". A single line beyond the limit is left out whole.
//
// Source: gpu-mode/kernelbot, run_eval.py, _limit_length.
func (s *Stream) Text() string {
	text := strings.ReplaceAll(strings.ReplaceAll(s.Decoded(), "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	kept, size := 0, textSlack
	for kept < len(lines) {
		size += utf8.RuneCountInString(lines[kept]) + 1
		if size > textLimit {
			break
		}
		kept++
	}
	if kept == len(lines) && s.Whole() {
		return text
	}
	omitted := fmt.Sprintf("[...] %d lines omitted", s.Newlines+1-kept)
	return strings.Join(append(lines[:kept], omitted), "\n")
}
