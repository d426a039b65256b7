package condition

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema/near"
)

// A parser evaluates while it reads: an expression has no side effects, and
// all of it is checked.
type parser struct {
	lexer
	vars  Vars
	tok   token
	depth int

	unvalued     bool // see [Check]: variables have names and no values
	notification bool
}

func (p *parser) next() (err error) {
	p.tok, err = p.scan()
	return err
}

func (p *parser) is(operator string) bool {
	return p.tok.kind == tokenOperator && p.tok.text == operator
}

func (p *parser) unexpected(want string) error {
	return p.errorf(p.tok.at, "got %s, want %s", p.tok.describe(), want)
}

func (p *parser) or() (value, error) { return p.logical("||", p.and) }

func (p *parser) and() (value, error) { return p.logical("&&", p.comparison) }

// logical reads operands of && or ||, all of which must be true or false.
func (p *parser) logical(op string, operand func() (value, error)) (value, error) {
	at := p.tok.at
	left, err := operand()
	for err == nil && p.is(op) {
		if err = p.logicalOperand(op, at, left); err != nil {
			break
		}
		if err = p.next(); err != nil {
			break
		}
		at = p.tok.at
		var right value
		if right, err = operand(); err != nil {
			break
		}
		if err = p.logicalOperand(op, at, right); err != nil {
			break
		}
		if op == "&&" {
			left = boolean(left.flag && right.flag)
		} else {
			left = boolean(left.flag || right.flag)
		}
	}
	return left, err
}

func (p *parser) logicalOperand(op string, at int, v value) error {
	if v.kind != kindBool && v.kind != kindAny {
		return p.errorf(at, "got %s beside %s, want true or false", v.kind, op)
	}
	return nil
}

// comparators are the operators between two values.
var comparators = map[string]func(a, b value) (bool, error){
	"==":       equal,
	"!=":       negated(equal),
	"=~":       matches,
	"!~":       negated(matches),
	"includes": includes,
}

func negated(fn func(a, b value) (bool, error)) func(a, b value) (bool, error) {
	return func(a, b value) (bool, error) {
		ok, err := fn(a, b)
		return !ok, err
	}
}

func (p *parser) comparison() (value, error) {
	left, err := p.unary()
	for err == nil {
		op := p.tok
		compare := comparators[op.text]
		if compare == nil || op.kind != tokenOperator && op.kind != tokenName {
			return left, nil
		}
		if err := p.next(); err != nil {
			return value{}, err
		}
		right, err := p.unary()
		if err != nil {
			return value{}, err
		}
		if left.kind == kindAny || right.kind == kindAny {
			left = value{kind: kindAny}
			continue
		}
		ok, err := compare(left, right)
		if err != nil {
			return value{}, p.errorf(op.at, "%s: %v", op.text, err)
		}
		left = boolean(ok)
	}
	return left, err
}

// unary reads a value and the ! before it. !null is true, as for a draft that
// is no pull request.
func (p *parser) unary() (value, error) {
	if !p.is("!") {
		return p.operand()
	}
	at := p.tok.at
	if err := p.descend(); err != nil {
		return value{}, err
	}
	defer p.ascend()
	if err := p.next(); err != nil {
		return value{}, err
	}
	v, err := p.unary()
	if err != nil {
		return value{}, err
	}
	if v.kind == kindAny {
		return v, nil
	}
	if v.kind != kindBool && v.kind != kindNull {
		return value{}, p.errorf(at, "got %s after !, want true or false", v.kind)
	}
	return boolean(!v.flag), nil
}

func (p *parser) descend() error {
	if p.depth++; p.depth > maxDepth {
		return p.errorf(p.tok.at, "nested more than %d deep", maxDepth)
	}
	return nil
}

func (p *parser) ascend() { p.depth-- }

func (p *parser) operand() (value, error) {
	tok := p.tok
	switch tok.kind {
	case tokenOperator:
		if tok.text == "(" {
			return p.parenthesis()
		}
		return value{}, p.unexpected("a value")
	case tokenEnd:
		return value{}, p.unexpected("a value")
	}
	if err := p.next(); err != nil {
		return value{}, err
	}
	switch tok.kind {
	case tokenString:
		return value{kind: kindString, text: tok.text}, nil
	case tokenNumber:
		n, err := strconv.ParseInt(tok.text, 10, 53) // exact as a float64
		if err != nil {
			return value{}, p.errorf(tok.at, "the number %s is too large", tok.text)
		}
		return value{kind: kindNumber, number: float64(n)}, nil
	case tokenRegexp:
		re, err := compile(tok.text, tok.flags)
		if err != nil {
			fault := p.errorf(tok.at, "%v", err)
			fault.local = errors.As(err, new(*localError))
			return value{}, fault
		}
		return value{kind: kindRegexp, re: re}, nil
	}
	return p.name(tok)
}

func (p *parser) parenthesis() (value, error) {
	if err := p.descend(); err != nil {
		return value{}, err
	}
	defer p.ascend()
	if err := p.next(); err != nil {
		return value{}, err
	}
	v, err := p.or()
	if err != nil {
		return value{}, err
	}
	if !p.is(")") {
		return value{}, p.unexpected(`")"`)
	}
	return v, p.next()
}

// name evaluates a word: a literal, a function's call or a variable.
func (p *parser) name(tok token) (value, error) {
	switch tok.text {
	case "true", "false":
		return boolean(tok.text == "true"), nil
	case "null":
		return value{}, nil
	case "includes":
		return value{}, p.errorf(tok.at, "includes stands between a list and a string")
	}
	if p.is("(") {
		return p.call(tok)
	}
	if p.unvalued {
		if !slices.Contains(Variables, tok.text) && !(p.notification && notificationName(tok.text)) {
			return value{}, p.unknown(tok, Variables)
		}
		return value{kind: kindAny}, nil
	}
	v, ok := p.vars.Values[tok.text]
	if !ok {
		return value{}, p.unknown(tok, slices.Collect(maps.Keys(p.vars.Values)))
	}
	out, err := valueOf(v)
	if err != nil {
		return value{}, p.errorf(tok.at, "%s: %v", tok.text, err)
	}
	return out, nil
}

// notificationName reports whether a variable exists in notifications only.
func notificationName(name string) bool {
	return strings.HasPrefix(name, "step.") || name == "pipeline.started_passing" || name == "pipeline.started_failing"
}

// unknown is the error for a variable that does not exist.
func (p *parser) unknown(tok token, known []string) *Error {
	name := tok.text
	reason := "there is no variable " + name + nearest(name, known)
	switch {
	case name == "env" || name == "build.env":
		reason = name + ` is a function, use ` + name + `("NAME")`
	case strings.HasPrefix(name, "step."):
		reason = name + ": step variables exist in conditions of notifications only"
	}
	err := p.errorf(tok.at, "%s", reason)
	err.Name = name
	return err
}

// call evaluates a function.
func (p *parser) call(fn token) (value, error) {
	if fn.text != "env" && fn.text != "build.env" {
		err := p.errorf(fn.at, "there is no function %s, have build.env and env", fn.text)
		err.Name = fn.text
		return value{}, err
	}
	if err := p.next(); err != nil {
		return value{}, err
	}
	arg := p.tok
	if arg.kind != tokenString {
		return value{}, p.unexpected("the name of a variable in quotes")
	}
	if err := p.next(); err != nil {
		return value{}, err
	}
	if !p.is(")") {
		return value{}, p.unexpected(`")"`)
	}
	if p.unvalued {
		return value{kind: kindAny}, p.next()
	}
	v, err := p.vars.env(arg.text)
	if err != nil {
		return value{}, p.errorf(arg.at, "%v", err)
	}
	if v.kind == kindNull && fn.text == "env" {
		v = value{kind: kindString} // env, unlike build.env, always gives a string
	}
	return v, p.next()
}

// nearest lists the names most like a wrong one, as the end of a sentence.
func nearest(name string, names []string) string {
	limit := max(2, len(name)/3)
	names = slices.Sorted(slices.Values(names))
	var close []string
	for _, have := range names {
		if last := have[strings.LastIndexByte(have, '.')+1:]; near.Distance(name, have) <= limit || last == name {
			close = append(close, have)
		}
	}
	slices.SortStableFunc(close, func(a, b string) int { return near.Distance(name, a) - near.Distance(name, b) })
	if len(close) == 0 {
		return ", have " + strings.Join(names, ", ")
	}
	return ", did you mean " + strings.Join(close[:min(3, len(close))], " or ") + "?"
}
