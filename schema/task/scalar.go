package task

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// What a plain scalar means in YAML 1.1 as PyYAML resolves it. yaml.v3 follows
// YAML 1.2 in places, so its tags are not used: there yes is a string, 1e5 a
// float and 1:30 a string.
var (
	nullPattern  = text.Pattern(`^(~|null|Null|NULL|)$`)
	boolPattern  = text.Pattern(`^(yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$`)
	intPattern   = text.Pattern(`^([-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+)$`)
	floatPattern = text.Pattern(`^([-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
	datePattern  = text.Pattern(`^([0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?([ \t]*(Z|[-+][0-9]{1,2}(:[0-9]{2})?))?)$`)
)

var errDate = errors.New("a date in YAML, which JSON has no form for; put it in quotes")

// scalar returns the value that PyYAML and then json.dumps make of n. What
// either of them cannot take is an error.
func scalar(n *yaml.Node) (schema.Value, error) {
	if n.Style&yaml.TaggedStyle != 0 {
		return schema.Value{}, fmt.Errorf("the tag %s; write the value without one", n.Tag)
	}
	if n.Style != 0 { // quoted or a block
		return schema.StringValue(n.Value), nil
	}
	switch s := n.Value; {
	case nullPattern().MatchString(s):
		return schema.Value{}, nil
	case boolPattern().MatchString(s):
		switch strings.ToLower(s) {
		case "yes", "true", "on":
			return schema.BoolValue(true), nil
		}
		return schema.BoolValue(false), nil
	case floatPattern().MatchString(s):
		return float(s)
	case intPattern().MatchString(s):
		return integer(s)
	case datePattern().MatchString(s):
		return schema.Value{}, errDate
	case s == "<<" || s == "=":
		return schema.Value{}, fmt.Errorf("a bare %s, which is a word of YAML's own; put it in quotes", s)
	default:
		return schema.StringValue(s), nil
	}
}

// integer reads binary, octal (a leading 0), decimal, hex and base 60, with
// underscores anywhere.
func integer(text string) (schema.Value, error) {
	s, negative := sign(strings.ReplaceAll(text, "_", ""))
	v, ok := new(big.Int), true
	switch {
	case s == "0":
	case strings.HasPrefix(s, "0b"):
		_, ok = v.SetString(s[2:], 2)
	case strings.HasPrefix(s, "0x"):
		_, ok = v.SetString(s[2:], 16)
	case strings.HasPrefix(s, "0"):
		_, ok = v.SetString(s, 8)
	case strings.Contains(s, ":"):
		for part := range strings.SplitSeq(s, ":") {
			digit, _ := new(big.Int).SetString(part, 10) // the pattern leaves digits only
			v.Mul(v, big.NewInt(60)).Add(v, digit)
		}
	default:
		_, ok = v.SetString(s, 10)
	}
	if !ok {
		return schema.Value{}, fmt.Errorf("%q, which is no number", text)
	}
	if negative {
		v.Neg(v)
	}
	return schema.ParseValue(v.String())
}

func float(text string) (schema.Value, error) {
	s, negative := sign(strings.ToLower(strings.ReplaceAll(text, "_", "")))
	f := 0.0
	switch {
	case s == ".inf" || s == ".nan":
		return schema.Value{}, fmt.Errorf("%s, which JSON has no form for", text)
	case strings.Contains(s, ":"):
		parts, base := strings.Split(s, ":"), 1.0
		for i := len(parts) - 1; i >= 0; i-- { // Python's order of additions
			digit, err := strconv.ParseFloat(parts[i], 64)
			if err != nil {
				return schema.Value{}, fmt.Errorf("%q, which is no number", text)
			}
			f += digit * base
			base *= 60
		}
	default:
		var err error
		f, err = strconv.ParseFloat(s, 64)
		if err != nil && !(errors.Is(err, strconv.ErrRange) && f == 0) || math.IsInf(f, 0) {
			return schema.Value{}, fmt.Errorf("%q, which is beyond a float", text)
		}
	}
	if negative {
		f = -f
	}
	return schema.FloatValue(f)
}

func sign(s string) (rest string, negative bool) {
	if s[0] == '-' || s[0] == '+' {
		return s[1:], s[0] == '-'
	}
	return s, false
}
