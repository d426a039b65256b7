package schema

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// maxDigits is Python's own limit on the digits of an integer it converts.
const maxDigits = 4300

// A Value is one JSON value in the form Python's json.dumps gives it: integers
// of any size, floats as their repr, object members in document order. Two
// values are equal when Python would write them alike. The zero Value is null.
type Value struct{ json string }

// ParseValue reads one JSON value.
func ParseValue(text string) (Value, error) {
	n, err := parseJSON([]byte(text))
	if err != nil {
		return Value{}, fmt.Errorf("parsing value: %w", err)
	}
	return nodeValue(n), nil
}

func IntValue(i int64) Value     { return Value{strconv.FormatInt(i, 10)} }
func BoolValue(v bool) Value     { return Value{strconv.FormatBool(v)} }
func StringValue(s string) Value { n := str(s); return nodeValue(&n) }

// FloatValue holds f; NaN and infinities, which JSON has no form for, are an
// error.
func FloatValue(f float64) (Value, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return Value{}, fmt.Errorf("float value: got %v, want a finite number", f)
	}
	return Value{FloatRepr(f)}, nil
}

// ListValue holds the items in their order.
func ListValue(items []Value) Value {
	parts := make([]string, len(items))
	for i, v := range items {
		parts[i] = v.JSON()
	}
	return Value{"[" + strings.Join(parts, ", ") + "]"}
}

// ObjectValue holds the members in their order; names occur once.
func ObjectValue(members []Param) Value {
	n := caseNode(members)
	return nodeValue(&n)
}

func nodeValue(n *node) Value {
	if n.kind == kindNull {
		return Value{}
	}
	return Value{jsonNotation.text(n)}
}

// JSON returns the value as json.dumps writes it.
func (v Value) JSON() string {
	if v.json == "" {
		return "null"
	}
	return v.json
}

// Text returns the value as Python's str writes it: True, None, 1e-05,
// [96, 'a'], a string bare.
func (v Value) Text() string {
	n := v.node()
	if n.kind == kindString {
		return n.text
	}
	return reprNotation.text(&n)
}

func (v Value) node() node {
	n, err := parseJSON([]byte(v.JSON()))
	if err != nil {
		panic("schema: a Value holds what its constructors wrote: " + err.Error())
	}
	return *n
}

// number checks a JSON number and gives it Python's spelling: an integer when
// written without fraction and exponent, else a float.
func number(literal string) (node, error) {
	if !strings.ContainsAny(literal, ".eE") {
		if len(literal) > maxDigits {
			return node{}, fmt.Errorf("an integer of %d digits, want at most %d", len(literal), maxDigits)
		}
		if literal == "-0" {
			literal = "0"
		}
		return node{kind: kindNumber, text: literal}, nil
	}
	f, err := strconv.ParseFloat(literal, 64)
	if errors.Is(err, strconv.ErrRange) {
		return node{}, errors.New("a number beyond the range of a float")
	}
	if err != nil {
		return node{}, errors.New("not a number")
	}
	return node{kind: kindNumber, text: FloatRepr(f)}, nil
}

// FloatRepr is Python's repr of a float: the shortest digits that read back,
// an exponent below 1e-4 and from 1e16, otherwise at least one decimal.
func FloatRepr(f float64) string {
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// reprNotation is what Python's repr writes.
var reprNotation = notation{
	null:  "None",
	bool:  func(text string) string { return strings.ToUpper(text[:1]) + text[1:] },
	quote: quoteRepr,
}

// quoteRepr appends Python's repr of a string: single quotes unless only
// those occur inside, escapes for what is not printable.
func quoteRepr(b *strings.Builder, s string) {
	quote := '\''
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
}
