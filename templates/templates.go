// Package templates holds texts with named placeholders that a machine or an image is
// set up from, and the typed functions that fill them. It never holds pipeline
// YAML, it knows no secret, and it reads nothing but what is embedded here.
//
// A function here returns either a whole text or an error that names the placeholder.
// Values are checked, not escaped: what could end a line, a quotation or an
// instruction is refused.
package templates

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

//go:embed agent hooks kbserve node runner secretd
var files embed.FS

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

// A form is how a value may look as a whole.
type form struct {
	pattern func() *regexp.Regexp
	want    string // for an error
}

// Forms of values that several texts have.
var (
	absolutePath = form{text.Pattern(`^(/[A-Za-z0-9_-][A-Za-z0-9._-]*){1,12}$`), "an absolute path"}
	slotName     = form{text.Pattern(`^[A-Za-z0-9_-]{1,64}$`), "letters, digits, - and _"}
)

// A value is what is filled in for a placeholder.
type value struct {
	name string // for an error
	got  string
	form form
}

// fault returns a [PlaceholderError] unless the value has its form.
func (v value) fault(text string) error {
	if v.form.pattern().MatchString(v.got) {
		return nil
	}
	return &PlaceholderError{text, v.name, v.got, v.form.want}
}

// fill returns an embedded text with pairs of a placeholder and its value filled in,
// unless one of the values has a fault; what names the text in an error.
func fill(file, what string, values []value, pairs ...string) (string, error) {
	for _, v := range values {
		if err := v.fault(what); err != nil {
			return "", err
		}
	}
	body, err := files.ReadFile(file)
	if err != nil {
		return "", err
	}
	return strings.NewReplacer(pairs...).Replace(string(body)), nil
}
