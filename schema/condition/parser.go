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
// all of it is checked. A fault ends it with a panic, which run turns into an
// error.
type parser struct {
	lexer
	vars  Vars
	tok   token
	depth int

	unvalued     bool // see [Check]: variables have names and no values
	notification bool
}

// run reads the whole expression. An empty one is a fault, or with unvalued true.
func (p *parser) run() (outcome bool, fault *Error) {
	defer func() {
		if r := recover(); r != nil {
			var ours bool
			if fault, ours = r.(*Error); !ours {
				panic(r)
			}
		}
	}()
	p.next()
	if p.tok.kind == tokenEnd {
		if !p.unvalued {
			p.fail(p.tok.at, "got no expression")
		}
		return true, nil
	}
	at := p.tok.at
	v := p.or()
	if p.tok.kind != tokenEnd {
		p.unexpected("an operator or the end")
	}
	if v.kind != kindBool && v.kind != kindAny {
		p.fail(at, "the expression is %s, want true or false", v.kind)
	}
	return v.flag, nil
}

func (p *parser) next() {
	var err error
	if p.tok, err = p.scan(); err != nil {
		panic(err)
	}
}

func (p *parser) fail(at int, format string, args ...any) { panic(p.errorf(at, format, args...)) }

func (p *parser) is(operator string) bool {
	return p.tok.kind == tokenOperator && p.tok.text == operator
}

func (p *parser) unexpected(want string) {
	p.fail(p.tok.at, "got %s, want %s", p.tok.describe(), want)
}

func (p *parser) or() value { return p.logical("||", p.and) }

func (p *parser) and() value { return p.logical("&&", p.comparison) }

// logical reads operands of && or ||, all of which must be true or false.
func (p *parser) logical(op string, operand func() value) value {
	at := p.tok.at
	left := operand()
	for p.is(op) {
		p.logicalOperand(op, at, left)
		p.next()
		at = p.tok.at
		right := operand()
		p.logicalOperand(op, at, right)
		if op == "&&" {
			left = boolean(left.flag && right.flag)
		} else {
			left = boolean(left.flag || right.flag)
		}
	}
	return left
}

func (p *parser) logicalOperand(op string, at int, v value) {
	if v.kind != kindBool && v.kind != kindAny {
		p.fail(at, "got %s beside %s, want true or false", v.kind, op)
	}
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

func (p *parser) comparison() value {
	left := p.unary()
	for {
		op := p.tok
		compare := comparators[op.text]
		if compare == nil || op.kind != tokenOperator && op.kind != tokenName {
			return left
		}
		p.next()
		right := p.unary()
		if left.kind == kindAny || right.kind == kindAny {
			left = value{kind: kindAny}
			continue
		}
		ok, err := compare(left, right)
		if err != nil {
			p.fail(op.at, "%s: %v", op.text, err)
		}
		left = boolean(ok)
	}
}

// unary reads a value and the ! before it. !null is true, as for a draft that
// is no pull request.
func (p *parser) unary() value {
	if !p.is("!") {
		return p.operand()
	}
	at := p.tok.at
	p.descend()
	p.next()
	v := p.unary()
	p.depth--
	if v.kind == kindAny {
		return v
	}
	if v.kind != kindBool && v.kind != kindNull {
		p.fail(at, "got %s after !, want true or false", v.kind)
	}
	return boolean(!v.flag)
}

func (p *parser) descend() {
	if p.depth++; p.depth > maxDepth {
		p.fail(p.tok.at, "nested more than %d deep", maxDepth)
	}
}

func (p *parser) operand() value {
	tok := p.tok
	if p.is("(") {
		return p.parenthesis()
	}
	if tok.kind == tokenOperator || tok.kind == tokenEnd {
		p.unexpected("a value")
	}
	p.next()
	switch tok.kind {
	case tokenString:
		return value{kind: kindString, text: tok.text}
	case tokenNumber:
		n, err := strconv.ParseInt(tok.text, 10, 53) // exact as a float64
		if err != nil {
			p.fail(tok.at, "the number %s is too large", tok.text)
		}
		return value{kind: kindNumber, number: float64(n)}
	case tokenRegexp:
		re, err := compile(tok.text, tok.flags)
		if err != nil {
			fault := p.errorf(tok.at, "%v", err)
			fault.local = errors.As(err, new(*localError))
			panic(fault)
		}
		return value{kind: kindRegexp, re: re}
	}
	return p.name(tok)
}

func (p *parser) parenthesis() value {
	p.descend()
	p.next()
	v := p.or()
	p.close()
	p.depth--
	return v
}

// close reads the end of a parenthesis.
func (p *parser) close() {
	if !p.is(")") {
		p.unexpected(`")"`)
	}
	p.next()
}

// name evaluates a word: a literal, a function's call or a variable.
func (p *parser) name(tok token) value {
	switch tok.text {
	case "true", "false":
		return boolean(tok.text == "true")
	case "null":
		return value{}
	case "includes":
		p.fail(tok.at, "includes stands between a list and a string")
	}
	if p.is("(") {
		return p.call(tok)
	}
	if p.unvalued {
		if !slices.Contains(Variables, tok.text) && !(p.notification && notificationName(tok.text)) {
			panic(p.unknown(tok, Variables))
		}
		return value{kind: kindAny}
	}
	v, ok := p.vars.Values[tok.text]
	if !ok {
		panic(p.unknown(tok, slices.Collect(maps.Keys(p.vars.Values))))
	}
	out, err := valueOf(v)
	if err != nil {
		p.fail(tok.at, "%s: %v", tok.text, err)
	}
	return out
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
func (p *parser) call(fn token) value {
	if fn.text != "env" && fn.text != "build.env" {
		err := p.errorf(fn.at, "there is no function %s, have build.env and env", fn.text)
		err.Name = fn.text
		panic(err)
	}
	p.next()
	arg := p.tok
	if arg.kind != tokenString {
		p.unexpected("the name of a variable in quotes")
	}
	p.next()
	v := value{kind: kindAny}
	if !p.unvalued && p.is(")") {
		var err error
		if v, err = p.vars.env(arg.text); err != nil {
			p.fail(arg.at, "%v", err)
		}
		if v.kind == kindNull && fn.text == "env" {
			v = value{kind: kindString} // env, unlike build.env, always gives a string
		}
	}
	p.close()
	return v
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
