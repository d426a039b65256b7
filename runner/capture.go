package runner

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// textLimit is Kernelbot's limit on shown output, in characters; textSlack of
// it is kept for the line that tells what is missing.
const (
	textLimit = 16384
	textSlack = 100
)

// A capture keeps the beginning of a stream, counts its lines to the end, and
// notices one text wherever it stands.
type capture struct {
	limit int    // bytes kept
	watch string // "": nothing

	head     []byte
	size     int64
	newlines int // "\n", "\r\n" and "\r", as Python's text mode reads them
	afterCR  bool
	tail     []byte // the last bytes, in which watch may have begun
	seen     bool
}

func (c *capture) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.head = append(c.head, p[:min(len(p), c.limit-len(c.head))]...)
	c.size += int64(len(p))
	c.newlines += bytes.Count(p, []byte("\n")) + bytes.Count(p, []byte("\r")) - bytes.Count(p, []byte("\r\n"))
	if c.afterCR && p[0] == '\n' {
		c.newlines--
	}
	c.afterCR = p[len(p)-1] == '\r'
	if c.watch != "" && !c.seen {
		c.look(p)
	}
	return len(p), nil
}

func (c *capture) look(p []byte) {
	keep := len(c.watch) - 1
	seam := append(c.tail, p[:min(len(p), keep)]...)
	c.seen = bytes.Contains(p, []byte(c.watch)) || bytes.Contains(seam, []byte(c.watch))
	recent := append(c.tail, p[max(0, len(p)-keep):]...)
	c.tail = bytes.Clone(recent[max(0, len(recent)-keep):])
}

// whole tells whether everything was kept.
func (c *capture) whole() bool { return c.size == int64(len(c.head)) }

// decoded returns what was kept: bytes that are not UTF-8 as U+FFFD, one each.
func (c *capture) decoded() string {
	head := c.head
	if !c.whole() { // do not show half a character as damage
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

// text returns the stream under Kernelbot's limit: whole lines while their
// characters, line ends and textSlack stay within textLimit, then one line
// "[...] N lines omitted". A single line beyond the limit is left out whole.
//
// Source: gpu-mode/kernelbot, run_eval.py, _limit_length.
func (c *capture) text() string {
	text := strings.ReplaceAll(strings.ReplaceAll(c.decoded(), "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	kept, size := 0, textSlack
	for kept < len(lines) {
		size += utf8.RuneCountInString(lines[kept]) + 1
		if size > textLimit {
			break
		}
		kept++
	}
	if kept == len(lines) && c.whole() {
		return text
	}
	omitted := fmt.Sprintf("[...] %d lines omitted", c.newlines+1-kept)
	return strings.Join(append(lines[:kept], omitted), "\n")
}
