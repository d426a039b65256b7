package runner

import (
	"bytes"

	"github.com/gpu-mode/kbgen/runner/judge"
)

// A capture keeps the beginning of a stream, counts its lines to the end, and
// notices one text wherever it stands.
type capture struct {
	judge.Stream
	limit int    // bytes kept
	watch string // "": nothing

	afterCR bool
	tail    []byte // the last bytes, in which watch may have begun
	seen    bool
}

func (c *capture) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.Head = append(c.Head, p[:min(len(p), c.limit-len(c.Head))]...)
	c.Size += int64(len(p))
	c.Newlines += bytes.Count(p, []byte("\n")) + bytes.Count(p, []byte("\r")) - bytes.Count(p, []byte("\r\n"))
	if c.afterCR && p[0] == '\n' {
		c.Newlines--
	}
	c.afterCR = p[len(p)-1] == '\r'
	if c.watch != "" && !c.seen {
		c.search(p)
	}
	return len(p), nil
}

// search looks for the text in p, and where p meets what came before.
func (c *capture) search(p []byte) {
	keep := len(c.watch) - 1
	seam := append(c.tail, p[:min(len(p), keep)]...)
	c.seen = bytes.Contains(p, []byte(c.watch)) || bytes.Contains(seam, []byte(c.watch))
	recent := append(c.tail, p[max(0, len(p)-keep):]...)
	c.tail = bytes.Clone(recent[max(0, len(recent)-keep):])
}
