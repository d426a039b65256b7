// Package templates holds texts with named placeholders that a machine or an image is
// set up from, and the typed functions that fill them. It never holds pipeline
// YAML, it knows no secret, and it reads nothing but what is embedded here.
//
// A function here returns either a whole text or an error that names the placeholder.
// Values are checked, not escaped: what could end a line, a quotation or an
// instruction is refused.
package templates

import (
	"fmt"
	"regexp"
)

// A PlaceholderError reports one placeholder whose value cannot be filled in.
type PlaceholderError struct {
	Text string // "runner image cuda"
	Name string
	Got  string
	Want string
}

func (e *PlaceholderError) Error() string {
	return fmt.Sprintf("%s: %s: got %q, want %s", e.Text, e.Name, e.Got, e.Want)
}

// fits reports a value that does not match whole as an error.
func fits(text, name, got string, pattern func() *regexp.Regexp, want string) error {
	if pattern().MatchString(got) {
		return nil
	}
	return &PlaceholderError{text, name, got, want}
}
