package pipeline

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// condition checks the syntax of a step's condition and of its notifications'.
func (c *checker) condition(s *step) {
	c.oneCondition(child(s.node, "if"), s.path+".if")
	for i, n := range items(child(s.node, "notify")) {
		c.oneCondition(child(n, "if"), index(s.path+".notify", i)+".if")
	}
}

func (c *checker) oneCondition(n *yaml.Node, path string) {
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return
	}
	if fault := conditionFault(n.Value); fault != "" {
		c.report("KB020", n, path, "%s", fault)
	}
}

// conditionFault reads a condition as far as quotes, regular expressions,
// parentheses and operators go, and says what is wrong. A text that still
// holds a variable in an odd place is taken.
func conditionFault(s string) string {
	depth := 0
	operand := false // the last word could be the left side of an operator
	words := 0
	for i := 0; i < len(s); {
		rest := s[i:]
		switch {
		case strings.ContainsRune(" \t\r\n", rune(s[i])):
			i++
			continue
		case strings.HasPrefix(rest, "//"):
			if end := strings.IndexByte(rest, '\n'); end >= 0 {
				i += end
			} else {
				i = len(s)
			}
			continue
		}
		words++
		switch ch := s[i]; ch {
		case '"', '\'', '/':
			n := closing(rest)
			if n == 0 {
				return fmt.Sprintf("%s is not closed in %s", map[byte]string{'"': "a quote", '\'': "a quote", '/': "a regular expression"}[ch], quote(s))
			}
			for i += n; ch == '/' && i < len(s) && s[i] >= 'a' && s[i] <= 'z'; i++ { // flags
			}
			operand = true
		case '(':
			depth++
			i++
			operand = false
		case ')':
			if depth--; depth < 0 {
				return fmt.Sprintf("a parenthesis too many in %s", quote(s))
			}
			i++
			operand = true
		case '=', '!', '&', '|', '~', '<', '>':
			op := operator(rest)
			if op == "" {
				return fmt.Sprintf("got %q in %s, want == != =~ !~ && || or !", strings.TrimRight(rest[:min(2, len(rest))], " "), quote(s))
			}
			if op != "!" && !operand {
				return fmt.Sprintf("nothing before %s in %s", op, quote(s))
			}
			i += len(op)
			operand = false
		default:
			i++
			operand = true
		}
	}
	switch {
	case depth > 0:
		return fmt.Sprintf("a parenthesis is not closed in %s", quote(s))
	case words > 0 && !operand:
		return fmt.Sprintf("nothing behind the last operator in %s", quote(s))
	}
	return ""
}

func operator(s string) string {
	for _, op := range []string{"==", "!=", "=~", "!~", "&&", "||"} {
		if strings.HasPrefix(s, op) {
			return op
		}
	}
	if s[0] == '!' {
		return "!"
	}
	return ""
}

// closing returns the length of a quoted text with its quotes, 0 when the
// closing one is missing.
func closing(s string) int {
	class := false // in a character class a slash is a slash
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case s[0] == '/' && s[i] == '[':
			class = true
		case s[0] == '/' && s[i] == ']':
			class = false
		case s[i] == s[0] && !class:
			return i + 1
		}
	}
	return 0
}
