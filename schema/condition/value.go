package condition

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

type kind int

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindList
	kindRegexp
	kindAny // of a variable whose value is not known
)

func (k kind) String() string {
	return [...]string{"null", "true or false", "a number", "a string", "a list", "a regular expression", "any value"}[k]
}

// A value is one operand; the field of its kind is set.
type value struct {
	kind   kind
	flag   bool
	number float64
	text   string
	list   []string
	re     *regexp.Regexp
}

func boolean(b bool) value { return value{kind: kindBool, flag: b} }

// valueOf takes a value of [Vars].
func valueOf(v any) (value, error) {
	switch v := v.(type) {
	case nil:
		return value{}, nil
	case bool:
		return boolean(v), nil
	case float64:
		return value{kind: kindNumber, number: v}, nil
	case string:
		return value{kind: kindString, text: v}, nil
	case []string:
		return value{kind: kindList, list: v}, nil
	}
	return value{}, fmt.Errorf("its value is a %T, which no expression can read", v)
}

// equal compares two scalars. Null equals null only; other values must have
// the same type.
func equal(a, b value) (bool, error) {
	switch {
	case a.kind == kindRegexp || b.kind == kindRegexp:
		return false, fmt.Errorf("a regular expression is matched by =~ or !~")
	case a.kind == kindList || b.kind == kindList:
		return false, fmt.Errorf("a list is searched by includes")
	case a.kind == kindNull || b.kind == kindNull:
		return a.kind == b.kind, nil
	case a.kind != b.kind:
		return false, fmt.Errorf("cannot compare %s with %s", a.kind, b.kind)
	}
	return a.flag == b.flag && a.number == b.number && a.text == b.text, nil
}

// matches applies a regular expression; null matches none.
func matches(a, pattern value) (bool, error) {
	switch {
	case pattern.kind != kindRegexp:
		return false, fmt.Errorf("got %s on the right, want a regular expression", pattern.kind)
	case a.kind == kindNull:
		return false, nil
	case a.kind != kindString:
		return false, fmt.Errorf("got %s on the left, want a string", a.kind)
	}
	return pattern.re.MatchString(a.text), nil
}

// includes searches a list; null includes nothing.
func includes(list, item value) (bool, error) {
	switch {
	case list.kind != kindList && list.kind != kindNull:
		return false, fmt.Errorf("got %s on the left, want a list", list.kind)
	case item.kind == kindRegexp:
		return slices.ContainsFunc(list.list, item.re.MatchString), nil
	case item.kind == kindString:
		return slices.Contains(list.list, item.text), nil
	case item.kind == kindNull:
		return false, nil
	}
	return false, fmt.Errorf("got %s on the right, want a string or a regular expression", item.kind)
}

// notBuildkites are constructs of regular expressions that Go takes and
// Buildkite refuses.
var notBuildkites = []string{"(?P<", "(?<"}

// compile translates a regular expression. The flag i is the only one.
//
// Errors: what Go's regexp cannot do (look-around, backreferences, possessive
// and atomic groups) and what Buildkite refuses (named groups).
func compile(pattern, flags string) (*regexp.Regexp, error) {
	if flags != "" && flags != "i" {
		return nil, fmt.Errorf("got the flags %q, Buildkite knows i only", flags)
	}
	for _, no := range notBuildkites {
		if at := strings.Index(pattern, no); at >= 0 && (at == 0 || pattern[at-1] != '\\') {
			return nil, fmt.Errorf("/%s/: Buildkite has no groups that begin with %q", pattern, no)
		}
	}
	if flags != "" {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if bad, ok := err.(*syntax.Error); ok {
		return nil, &localError{fmt.Sprintf("kblocal cannot match this regular expression: %s: %q", bad.Code, bad.Expr)}
	}
	return re, err
}
