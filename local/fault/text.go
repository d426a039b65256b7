package fault

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse reads the text form of a rule:
//
//	[METHOD] PATH [NAME=VALUE | NAME]...
//
// The names are those of the JSON form: after=2 count=1 latency=200ms
// status=500 body="<h1>no</h1>" drop drop_after cut=10 duplicate
// rate_limit=rest_user:30 (scope and seconds). A value in double quotes is
// read as Go reads it.
//
// Errors wrap [ErrRule] and name the word.
func Parse(text string) (Rule, error) {
	words, err := split(text)
	if err != nil {
		return Rule{}, err
	}
	var r Rule
	if len(words) > 0 && !strings.ContainsAny(words[0], "/*=") {
		r.Method, words = words[0], words[1:]
	}
	if len(words) == 0 {
		return Rule{}, fmt.Errorf("%w %q: it has no path, want [METHOD] PATH and what to do", ErrRule, text)
	}
	r.Path, words = words[0], words[1:]
	seen := map[string]bool{}
	for _, word := range words {
		name, value, hasValue := strings.Cut(word, "=")
		if seen[name] {
			return Rule{}, fmt.Errorf("%w %q: %s is there twice", ErrRule, text, name)
		}
		seen[name] = true
		if err := r.set(name, value, hasValue); err != nil {
			return Rule{}, fmt.Errorf("%w %q: %w", ErrRule, text, err)
		}
	}
	return r, r.Validate()
}

// set reads one word of a rule.
func (r *Rule) set(name, value string, hasValue bool) (err error) {
	flags := map[string]*bool{"drop": &r.Drop, "drop_after": &r.DropAfter, "duplicate": &r.Duplicate}
	numbers := map[string]*int{"after": &r.After, "count": &r.Count, "status": &r.Status, "cut": &r.Cut}
	switch {
	case flags[name] != nil && !hasValue:
		*flags[name] = true
	case flags[name] != nil:
		if *flags[name], err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%s: got %q, want true or false", name, value)
		}
	case numbers[name] != nil:
		if *numbers[name], err = strconv.Atoi(value); err != nil {
			return fmt.Errorf("%s: got %q, want a whole number", name, value)
		}
	case name == "latency":
		return r.Latency.UnmarshalText([]byte(value))
	case name == "body":
		if r.Body, err = unquote(value); err != nil {
			return fmt.Errorf("body: got %s, want a string in double quotes as Go writes it", value)
		}
	case name == "rate_limit":
		scope, seconds, _ := strings.Cut(value, ":")
		reset, err := strconv.Atoi(seconds)
		if err != nil {
			return fmt.Errorf("rate_limit: got %q, want SCOPE:SECONDS such as rest_user:30", value)
		}
		r.RateLimit = &RateLimit{Scope: scope, Reset: reset}
	default:
		return fmt.Errorf("%q is not known, want after, body, count, cut, drop, drop_after, duplicate, latency, rate_limit or status", name)
	}
	return nil
}

func unquote(value string) (string, error) {
	if !strings.HasPrefix(value, `"`) {
		return value, nil
	}
	return strconv.Unquote(value)
}

// split cuts a text into words at spaces that do not lie in double quotes.
func split(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	quoted, escaped := false, false
	flush := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
			word.Reset()
		}
	}
	for _, r := range text {
		switch {
		case !quoted && (r == ' ' || r == '\t' || r == '\n'):
			flush()
			continue
		case escaped:
			escaped = false
		case quoted && r == '\\':
			escaped = true
		case r == '"':
			quoted = !quoted
		}
		word.WriteRune(r)
	}
	if quoted {
		return nil, fmt.Errorf("%w %q: a double quote is not closed", ErrRule, text)
	}
	flush()
	return words, nil
}

// String is the text form; [Parse] reads it back.
func (r Rule) String() string {
	var words []string
	if r.Method != "" {
		words = append(words, r.Method)
	}
	words = append(words, r.Path)
	number := func(name string, n int) {
		if n != 0 {
			words = append(words, fmt.Sprintf("%s=%d", name, n))
		}
	}
	flag := func(name string, on bool) {
		if on {
			words = append(words, name)
		}
	}
	number("after", r.After)
	number("count", r.Count)
	if r.Latency != 0 {
		words = append(words, "latency="+r.Latency.String())
	}
	number("status", r.Status)
	if r.Body != "" {
		words = append(words, "body="+strconv.Quote(r.Body))
	}
	flag("drop", r.Drop)
	flag("drop_after", r.DropAfter)
	number("cut", r.Cut)
	if r.RateLimit != nil {
		words = append(words, fmt.Sprintf("rate_limit=%s:%d", r.RateLimit.Scope, r.RateLimit.Reset))
	}
	flag("duplicate", r.Duplicate)
	return strings.Join(words, " ")
}
