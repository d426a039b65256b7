package resource

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
)

const markStart = "# kbnode sha256:"

// mark puts the line into a file by which kbnode knows its own ones: the hash of
// all other lines. It is the first line, of a script the second. Content that has
// a mark gets a new one.
func mark(content []byte) []byte {
	rest, _, _ := unmark(content)
	head, tail := shebang(rest)
	sum := sha256.Sum256(rest)
	marked := make([]byte, 0, len(rest)+len(markStart)+2*sha256.Size+1)
	marked = append(marked, head...)
	marked = append(marked, markStart...)
	marked = hex.AppendEncode(marked, sum[:])
	return append(append(marked, '\n'), tail...)
}

// Owned reports whether the content was written by kbnode and is as it wrote it.
func Owned(content []byte) bool {
	rest, mark, ok := unmark(content)
	sum := sha256.Sum256(rest)
	return ok && mark == hex.EncodeToString(sum[:])
}

// Marked reports whether the content was written by kbnode, changed since or not.
func Marked(content []byte) bool {
	_, _, ok := unmark(content)
	return ok
}

// unmark takes the mark out.
func unmark(content []byte) (rest []byte, mark string, ok bool) {
	head, tail := shebang(content)
	line, after, ok := bytes.Cut(tail, []byte("\n"))
	if !ok || !bytes.HasPrefix(line, []byte(markStart)) {
		return content, "", false
	}
	return append(bytes.Clone(head), after...), string(line[len(markStart):]), true
}

// shebang splits a script after its first line.
func shebang(content []byte) (head, tail []byte) {
	if !bytes.HasPrefix(content, []byte("#!")) {
		return nil, content
	}
	end := bytes.IndexByte(content, '\n') + 1
	if end == 0 {
		return nil, content
	}
	return content[:end], content[end:]
}
