package pipeline

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// at is where an offset in one of the step's commands lies in the whole script.
func (s *script) at(n *yaml.Node, offset int) (int, bool) {
	start, ok := s.starts[n]
	return start + offset, ok
}

// comments reports whether an offset in one of the step's commands lies in a
// comment of the shell's.
func (s *script) comments(n *yaml.Node, offset int) bool {
	if s == nil {
		return false
	}
	at, ok := s.at(n, offset)
	return ok && s.inComment(at)
}

func (s *script) inComment(at int) bool {
	i, exact := slices.BinarySearchFunc(s.hidden, at, func(h [2]int, at int) int { return h[0] - at })
	return exact || i > 0 && at < s.hidden[i-1][1]
}

// shellComments finds the comments of a script: from a # that begins a word,
// outside of quotes and of here-documents, to the end of the line.
func shellComments(s string) [][2]int {
	var found [][2]int
	quote := byte(0)
	ends := []string{} // here-documents that begin with the next line
	for i := 0; i < len(s); i++ {
		switch ch := s[i]; {
		case ch == '\\' && quote != '\'':
			i++
		case quote != 0:
			if ch == quote {
				quote = 0
			}
		case ch == '\'' || ch == '"' || ch == '`':
			quote = ch
		case ch == '#' && (i == 0 || strings.IndexByte(" \t\n;&|(", s[i-1]) >= 0):
			end := strings.IndexByte(s[i:], '\n')
			if end < 0 {
				end = len(s) - i
			}
			found = append(found, [2]int{i, i + end})
			i += end - 1
		case strings.HasPrefix(s[i:], "<<<"):
			i += 2
		case strings.HasPrefix(s[i:], "<<"):
			if end := hereEnd(s[i+2:]); end != "" {
				ends = append(ends, end)
			}
			i++
		case ch == '\n' && len(ends) > 0:
			i = afterHere(s, i+1, ends) - 1
			ends = ends[:0]
		}
	}
	return found
}

// hereEnd is the word that ends a here-document, as it stands behind "<<".
func hereEnd(s string) string {
	s = strings.TrimLeft(strings.TrimPrefix(s, "-"), " \t")
	end := strings.IndexAny(s, " \t\n;&|<>()")
	if end < 0 {
		end = len(s)
	}
	return strings.Trim(s[:end], "\"'\\")
}

// afterHere is the offset of the line behind the last of several here-documents.
func afterHere(s string, at int, ends []string) int {
	for _, end := range ends {
		for at < len(s) {
			line := s[at:]
			next := len(s)
			if i := strings.IndexByte(line, '\n'); i >= 0 {
				line, next = line[:i], at+i+1
			}
			at = next
			if strings.TrimLeft(line, "\t") == end {
				break
			}
		}
	}
	return at
}
