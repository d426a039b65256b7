// Package text makes foreign text fit for where it goes: a terminal, a log, an
// error, a database. Names of agents, output of submissions and values from
// files are written by people whom nobody trusts; every program of ours cleans
// them here and nowhere else. It knows nothing of where a text comes from.
package text

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Storable makes text storable as PostgreSQL JSONB: U+0000 and bytes that are
// not UTF-8 become U+FFFD.
func Storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Line makes one line of s: escape sequences vanish, and whatever else is
// not printable (line ends, tabs, C0 and C1 controls, marks that change the
// direction of writing) becomes a blank. It has no blanks at its ends and at
// most limit runes, with "…" behind them when something was cut.
func Line(s string, limit int) string {
	s = clean(s, func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	})
	return Shorten(strings.TrimSpace(s), limit)
}

// Lines keeps the lines and tabs of s and drops what would move a cursor,
// colour anything or hide text: escape sequences, controls, marks that change
// the direction of writing. "\r\n" counts as "\n".
func Lines(s string) string {
	return clean(strings.ReplaceAll(s, "\r\n", "\n"), keepLines)
}

// Coloured is [Lines], but keeps the escape sequences that set colours.
func Coloured(s string) string {
	var b strings.Builder
	for s = strings.ReplaceAll(s, "\r\n", "\n"); s != ""; {
		at := colour().FindStringIndex(s)
		if at == nil {
			at = []int{len(s), len(s)}
		}
		b.WriteString(clean(s[:at[0]], keepLines))
		b.WriteString(s[at[0]:at[1]])
		s = s[at[1]:]
	}
	return b.String()
}

// Shorten cuts s to limit runes and marks the cut with "…".
func Shorten(s string, limit int) string {
	n := 0
	for at := range s {
		if n++; n > limit {
			return s[:at] + "…"
		}
	}
	return s
}

// Quote quotes s as Go does, the first 60 runes of it, with "…" behind the
// quotes when something was cut: for errors about values of any length.
func Quote(s string) string {
	if utf8.RuneCountInString(s) > 60 {
		return fmt.Sprintf("%.60q…", s)
	}
	return fmt.Sprintf("%q", s)
}

// keepLines maps what [Lines] drops to -1.
func keepLines(r rune) rune {
	if r == '\n' || r == '\t' || unicode.IsPrint(r) || r == '\u00a0' {
		return r
	}
	return -1
}

// clean drops escape sequences and maps the rest. Bytes that are not UTF-8
// become U+FFFD.
func clean(s string, mapping func(rune) rune) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.ContainsAny(s, "\x1b\u009b\u009d\u0090\u009f\u009e\u0098") {
		s = escapes().ReplaceAllString(s, "")
	}
	return strings.Map(mapping, s)
}

// escapes matches what begins with ESC or with a C1 control of the same
// meaning: a control sequence, a string up to its end (BEL or ST, or where the
// line ends), any other two or three characters, an ESC alone.
//
// Source: ECMA-48, sections 5.3 to 5.6.
var escapes = Pattern(`(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]?` +
	`|(?:\x1b[\]PX^_]|[\x{90}\x{98}\x{9d}\x{9e}\x{9f}])[^\x07\x1b\x{9c}\n]*(?:\x07|\x1b\\|\x{9c})?` +
	`|\x1b[ -/]*[0-~]?`)

// colour matches an escape sequence that sets a colour, and no other.
var colour = Pattern(`\x1b\[[0-9;:]*m`)

// Pattern returns a regular expression that is compiled when it is first asked
// for: a program that starts often pays for those that it uses. It panics then
// if expr is none; a test meets every pattern.
func Pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// YAMLError takes the line out of an error of yaml.v3's, 0 if it names none.
func YAMLError(err error) (line int, words string) {
	words = strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(words, "line "); ok {
		number, rest, found := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); found && err == nil {
			return n, rest
		}
	}
	return 0, words
}
