package explain

import (
	"regexp"

	"github.com/gpu-mode/kbgen/schema/text"
)

// comparisons are how checkers word what they expected and what they got.
//
// Source of the first: the utils.py files of gpu-mode/reference-kernels.
var comparisons = []struct {
	pattern                 func() *regexp.Regexp
	got, expected, location int // groups; 0: none
}{
	{text.Pattern(`(?i)\berror at (\([^)]{0,100}\)|\[[^\]]{0,100}\]|[^ :]{1,100}): (\S{1,100}) (\S{1,100})`), 2, 3, 1},
	{text.Pattern(`(?i)\bgot ([^\n]{1,100}?),? (?:want|wanted|expected) ([^\n;]{1,100})`), 1, 2, 0},
	{text.Pattern(`(?i)\b(?:want|wanted|expected) ([^\n]{1,100}?),? (?:but )?got ([^\n;]{1,100})`), 2, 1, 0},
}

// maxCompared bounds how much of a message is searched, in bytes.
const maxCompared = 4 << 10

// Compared finds in a checker's message what it expected and what it got; both
// are "" where it does not say.
func Compared(message string) (expected, got string) {
	message = message[:min(len(message), maxCompared)]
	for _, c := range comparisons {
		m := c.pattern().FindStringSubmatch(message)
		if m == nil {
			continue
		}
		expected, got = m[c.expected], m[c.got]
		if c.location != 0 {
			got += " at " + m[c.location]
		}
		return Line(expected), Line(got)
	}
	return "", ""
}
