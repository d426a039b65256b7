// Package capture keeps what a program nobody trusts writes: its beginning and
// end, and how much it was. It reads all the while, so that no program waits for
// its reader, and gives up on pipes that somebody holds open.
package capture

import (
	"bytes"

	"github.com/gpu-mode/kbgen/runner/judge"
)

// OutputHead is what is kept of stdout and of stderr, in bytes: more than the
// 16,384 characters that a result shows, however they are encoded.
const OutputHead = 256 << 10

// A Capture keeps the beginning and the end of a stream, counts its lines to the end, and
// notices one text wherever it stands.
type Capture struct {
	judge.Stream
	Limit int    // bytes kept of the beginning
	Watch string // "": nothing

	afterCR bool
	tail    []byte // the last bytes, in which watch may have begun
	Seen    bool
}

func (c *Capture) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	fits := min(len(p), c.Limit-len(c.Head))
	c.Head = append(c.Head, p[:fits]...)
	c.keepEnd(p[fits:])
	c.Size += int64(len(p))
	c.Newlines += bytes.Count(p, []byte("\n")) + bytes.Count(p, []byte("\r")) - bytes.Count(p, []byte("\r\n"))
	if c.afterCR && p[0] == '\n' {
		c.Newlines--
	}
	c.afterCR = p[len(p)-1] == '\r'
	if c.Watch != "" && !c.Seen {
		c.search(p)
	}
	return len(p), nil
}

// endLimit is what is kept of a stream's end beside its beginning, in bytes.
const endLimit = 32 << 10

// keepEnd keeps the last bytes of what is beyond the beginning, up to twice the
// limit: so few are moved when they come one by one.
func (c *Capture) keepEnd(p []byte) {
	p = p[max(0, len(p)-endLimit):]
	if len(c.Tail)+len(p) > 2*endLimit {
		c.Tail = c.Tail[:copy(c.Tail, c.Tail[len(c.Tail)-endLimit:])]
	}
	c.Tail = append(c.Tail, p...)
}

// search looks for the text in p, and where p meets what came before.
func (c *Capture) search(p []byte) {
	keep := len(c.Watch) - 1
	seam := append(c.tail, p[:min(len(p), keep)]...)
	c.Seen = bytes.Contains(p, []byte(c.Watch)) || bytes.Contains(seam, []byte(c.Watch))
	recent := append(c.tail, p[max(0, len(p)-keep):]...)
	c.tail = bytes.Clone(recent[max(0, len(recent)-keep):])
}
