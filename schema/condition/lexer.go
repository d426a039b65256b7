package condition

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

type tokenKind int

const (
	tokenEnd tokenKind = iota
	tokenOperator
	tokenName   // build.branch, true, includes
	tokenNumber // digits
	tokenString // text is unescaped
	tokenRegexp // text is the pattern, flags what follows it
)

type token struct {
	kind  tokenKind
	text  string
	flags string
	at    int // byte offset
}

// describe names a token in an error.
func (t token) describe() string {
	switch t.kind {
	case tokenEnd:
		return "the end"
	case tokenString:
		return fmt.Sprintf("the string %q", t.text)
	case tokenRegexp:
		return fmt.Sprintf("the regular expression /%s/", t.text)
	}
	return fmt.Sprintf("%q", t.text)
}

type lexer struct {
	src string
	pos int
}

// operators are tried in order, longer ones first.
var operators = []string{"==", "!=", "=~", "!~", "&&", "||", "!", "(", ")", ","}

// refusals are texts that people write and Buildkite does not take.
var refusals = []struct{ text, reason string }{
	{"@>", `"@>" is not an operator of Buildkite's, use includes`},
	{"=", `"=" is not an operator, use ==`},
	{"&", `"&" is not an operator, use &&`},
	{"|", `"|" is not an operator, use ||`},
	{"<", "numbers can be compared by == and != only"},
	{">", "numbers can be compared by == and != only"},
	{"-", "numbers are whole and have no sign"},
	{"/*", "comments begin with // only"},
}

// limits are texts that Buildkite takes and this package does not.
var limits = []struct{ text, reason string }{
	{"?", "a ? b : c"},
	{"[", "lists in brackets, compare one by one"},
	{"$", "$ in conditions, use build.env"},
}

// scan returns the next token.
func (l *lexer) scan() (token, error) {
	l.skip()
	at := l.pos
	if at == len(l.src) {
		return token{at: at}, nil
	}
	rest := l.src[at:]
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			l.pos += len(op)
			return token{kind: tokenOperator, text: op, at: at}, nil
		}
	}
	for _, no := range refusals {
		if strings.HasPrefix(rest, no.text) {
			return token{}, l.errorf(at, "%s", no.reason)
		}
	}
	for _, no := range limits {
		if strings.HasPrefix(rest, no.text) {
			return token{}, l.unsupported(at, no.reason)
		}
	}
	switch c := rest[0]; {
	case c == '"' || c == '\'':
		return l.quoted(c)
	case c == '/':
		return l.regexp()
	case c >= '0' && c <= '9':
		text := l.take(isDigit)
		if l.pos < len(l.src) && (isNameByte(l.src[l.pos]) || l.src[l.pos] == '.') {
			return token{}, l.errorf(at, "numbers are whole and have digits only")
		}
		return token{kind: tokenNumber, text: text, at: at}, nil
	case isNameByte(c):
		return token{kind: tokenName, text: l.take(func(c byte) bool { return isNameByte(c) || c == '.' }), at: at}, nil
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return token{}, l.errorf(at, "unexpected %q", r)
}

// skip passes over blanks and comments.
func (l *lexer) skip() {
	for l.pos < len(l.src) {
		switch {
		case strings.IndexByte(" \t\r\n", l.src[l.pos]) >= 0:
			l.pos++
		case strings.HasPrefix(l.src[l.pos:], "//"):
			end := strings.IndexByte(l.src[l.pos:], '\n')
			if end < 0 {
				l.pos = len(l.src)
				return
			}
			l.pos += end
		default:
			return
		}
	}
}

func (l *lexer) take(ok func(byte) bool) string {
	from := l.pos
	for l.pos < len(l.src) && ok(l.src[l.pos]) {
		l.pos++
	}
	return l.src[from:l.pos]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isNameByte(c byte) bool {
	return c == '_' || isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// quoted reads a string; a backslash escapes a quote or a backslash.
func (l *lexer) quoted(quote byte) (token, error) {
	at := l.pos
	var text strings.Builder
	for i := at + 1; i < len(l.src); i++ {
		switch c := l.src[i]; c {
		case quote:
			l.pos = i + 1
			return token{kind: tokenString, text: text.String(), at: at}, nil
		case '$':
			if quote == '"' {
				return token{}, l.unsupported(i, "$ in double quotes, use single ones or build.env")
			}
			text.WriteByte(c)
		case '\\':
			i++
			if i == len(l.src) || strings.IndexByte(`\'"$`, l.src[i]) < 0 {
				return token{}, l.errorf(i-1, `a backslash in a string goes before \ ' " or $ only`)
			}
			text.WriteByte(l.src[i])
		default:
			text.WriteByte(c)
		}
	}
	return token{}, l.errorf(at, "the string has no end")
}

// regexp reads /pattern/flags; in the pattern \/ stands for a slash.
func (l *lexer) regexp() (token, error) {
	at := l.pos
	var text strings.Builder
	class := false // in brackets a slash is a slash
	for i := at + 1; i < len(l.src); i++ {
		switch c := l.src[i]; {
		case c == '/' && !class:
			l.pos = i + 1
			return token{kind: tokenRegexp, text: text.String(), flags: l.take(isNameByte), at: at}, nil
		case c == '\n':
			return token{}, l.errorf(at, "the regular expression has no end on its line")
		case c == '\\' && i+1 < len(l.src) && l.src[i+1] != '\n':
			i++
			if l.src[i] != '/' {
				text.WriteByte(c)
			}
			text.WriteByte(l.src[i])
		default:
			class = c == '[' || class && c != ']'
			text.WriteByte(c)
		}
	}
	return token{}, l.errorf(at, "the regular expression has no end")
}

func (l *lexer) errorf(at int, format string, args ...any) *Error {
	before := l.src[:at]
	line := strings.Count(before, "\n")
	before = before[strings.LastIndexByte(before, '\n')+1:]
	return &Error{Line: line + 1, Column: utf8.RuneCountInString(before) + 1, Offset: at, Reason: fmt.Sprintf(format, args...)}
}

// unsupported is the error for what Buildkite takes and this package does not.
func (l *lexer) unsupported(at int, reason string) *Error {
	err := l.errorf(at, "kblocal does not implement %s", reason)
	err.local = true
	return err
}

// A localError is a limit of this package.
type localError struct{ reason string }

func (e *localError) Error() string { return e.reason }
