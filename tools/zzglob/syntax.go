package zzglob

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// maxCombinations bounds the paths of one pattern, because {a,b}{a,b}… doubles
// with every brace.
const maxCombinations = 4096

var (
	errTooMany      = errors.New("more than 4096 combinations of braces and **")
	errOpenBrace    = errors.New("{ without }")
	errCloseBrace   = errors.New("} without {")
	errOpenClass    = errors.New("[ without ]")
	errEmptyClass   = errors.New("no character between [ and ]")
	errClassSlash   = errors.New("/ between [ and ]")
	errLastIsEscape = errors.New(`\ at the end`)
	errNUL          = errors.New("a NUL byte")
)

// doubleStar stands for ** once braces are spread: a byte no path has, so that
// the two * of {*,a}* do not become one by lying side by side.
const doubleStar = "\x00"

type kind int

const (
	literal kind = iota // the element itself
	wild                // a doublestar pattern for one element
	anyDirs             // **: zero or more whole elements
)

// A segment matches one element of a path, or any number when it is anyDirs.
type segment struct {
	kind kind
	text string // what it is: the element, unescaped, or the pattern
}

func (s segment) match(name string) bool {
	if s.kind == literal {
		return s.text == name
	}
	return doublestar.MatchUnvalidated(s.text, name)
}

// escape returns a pattern that matches s only.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`,
		"]", `\]`, "{", `\{`, "}", `\}`, "~", `\~`, ",", `\,`).Replace(s)
}

// token returns the length in bytes of the first token of s, which is not
// empty: an escaped character, a class, or a single byte.
func token(s string) (int, error) {
	switch s[0] {
	case '\\':
		if len(s) == 1 {
			return 0, errLastIsEscape
		}
		_, n := utf8.DecodeRuneInString(s[1:])
		return 1 + n, nil
	case '[':
		for i := 1; i < len(s); i++ {
			switch s[i] {
			case '\\':
				i++
			case ']':
				return i + 1, nil
			}
		}
		return 0, errOpenClass
	}
	return 1, nil
}

// markStars puts doubleStar in place of every run of two or more *.
func markStars(pattern string) (string, error) {
	if strings.Contains(pattern, doubleStar) {
		return "", errNUL
	}
	var b strings.Builder
	for pattern != "" {
		if strings.HasPrefix(pattern, "**") {
			b.WriteString(doubleStar)
			pattern = strings.TrimLeft(pattern, "*")
			continue
		}
		n, err := token(pattern)
		if err != nil {
			return "", err
		}
		b.WriteString(pattern[:n])
		pattern = pattern[n:]
	}
	return b.String(), nil
}

// spread returns every combination of a marked pattern's braces, leftmost
// slowest, and of the readings of a doubleStar inside a segment. No result has
// a brace, and a doubleStar in it is a whole segment and not the last.
func spread(marked string) ([]string, error) {
	flat, err := spreadBraces(marked)
	if err != nil {
		return nil, err
	}
	// After the braces, because they decide what is next to a doubleStar.
	return spreadAll(flat, spreadStars)
}

func spreadAll(patterns []string, by func(string) ([]string, error)) ([]string, error) {
	var all []string
	for _, p := range patterns {
		some, err := by(p)
		if err != nil {
			return nil, err
		}
		if all = append(all, some...); len(all) > maxCombinations {
			return nil, errTooMany
		}
	}
	return all, nil
}

func spreadBraces(pattern string) ([]string, error) {
	for i := 0; i < len(pattern); {
		switch pattern[i] {
		case '{':
			choices, n, err := cutBraces(pattern[i:])
			if err != nil {
				return nil, err
			}
			for j := range choices {
				choices[j] = pattern[:i] + choices[j] + pattern[i+n:]
			}
			return spreadAll(choices, spreadBraces)
		case '}':
			return nil, errCloseBrace
		}
		n, err := token(pattern[i:])
		if err != nil {
			return nil, err
		}
		i += n
	}
	return []string{pattern}, nil
}

// spreadStars reads the first doubleStar that is not a whole segment, and then
// the rest. No doubleStar is escaped or in a class, since no path has a NUL.
func spreadStars(pattern string) ([]string, error) {
	for from := 0; ; {
		i := strings.Index(pattern[from:], doubleStar)
		if i < 0 {
			return []string{pattern}, nil
		}
		before, rest := pattern[:from+i], pattern[from+i+len(doubleStar):]
		if before != "" && !strings.HasSuffix(before, "/") {
			// a**b is a*b or a*/**/*b
			return spreadAll([]string{before + "*" + rest, before + "*/" + doubleStar + "/*" + rest}, spreadStars)
		}
		if !strings.HasPrefix(rest, "/") {
			rest = "/*" + rest // **b is **/*b, and a last ** is **/*
		}
		pattern = before + doubleStar + rest
		from = len(before) + len(doubleStar)
	}
}

// cutBraces splits the group that s starts with at its own commas, and returns
// the group's length in bytes.
func cutBraces(s string) (choices []string, length int, err error) {
	depth, from := 0, 1
	for i := 0; i < len(s); {
		switch s[i] {
		case '{':
			depth++
		case ',':
			if depth == 1 {
				choices = append(choices, s[from:i])
				from = i + 1
			}
		case '}':
			if depth--; depth == 0 {
				return append(choices, s[from:i]), i + 1, nil
			}
		}
		n, err := token(s[i:])
		if err != nil {
			return nil, 0, err
		}
		i += n
	}
	return nil, 0, errOpenBrace
}

// compile turns a result of spread into segments. An absolute path starts with
// the empty literal, as strings.Split would have it.
func compile(flat string) ([]segment, error) {
	var segs []segment
	var text, glob strings.Builder // the open segment: as it is, and as a doublestar pattern
	isGlob := false
	end := func() {
		switch g := glob.String(); {
		case g == doubleStar:
			if n := len(segs); n == 0 || segs[n-1].kind != anyDirs {
				segs = append(segs, segment{kind: anyDirs})
			}
		case isGlob:
			segs = append(segs, segment{wild, g})
		case g != "" || len(segs) == 0: // no empty element but the first
			segs = append(segs, segment{literal, text.String()})
		}
		text.Reset()
		glob.Reset()
		isGlob = false
	}
	for i := 0; i < len(flat); {
		n, err := token(flat[i:])
		if err != nil {
			return nil, err
		}
		tok := flat[i : i+n]
		i += n
		switch {
		case tok == "/" || tok == `\/`: // escaped or not, it separates
			end()
		case tok == "*" || tok == "?":
			glob.WriteString(tok)
			isGlob = true
		case tok[0] == '[':
			class, err := classOf(tok)
			if err != nil {
				return nil, err
			}
			glob.WriteString(class)
			isGlob = true
		default:
			if len(tok) > 1 {
				tok = tok[1:] // the escape
			}
			text.WriteString(tok)
			glob.WriteString(escape(tok))
		}
	}
	end()
	if segs[len(segs)-1].kind == anyDirs { // a/**/
		segs = append(segs, segment{wild, "*"})
	}
	return segs, nil
}

// classOf rewrites a class for doublestar, which knows ranges and ! where this
// syntax has plain characters: all of them are escaped.
func classOf(tok string) (string, error) {
	body, not := strings.CutPrefix(tok[1:len(tok)-1], "^")
	if body == "" {
		return "", errEmptyClass
	}
	var class strings.Builder
	class.WriteString("[")
	if not {
		class.WriteString("^")
	}
	escaped := false
	for _, r := range body {
		if r == '\\' && !escaped {
			escaped = true
			continue
		}
		if r == '/' {
			return "", errClassSlash
		}
		escaped = false
		class.WriteString(`\` + string(r))
	}
	class.WriteString("]")
	return class.String(), nil
}
