// Package condition checks and evaluates the if expressions of steps as
// Buildkite does:
//
//	build.branch == "main" && build.message !~ /skip/i // and comments
//
// It has == != =~ !~ && || ! includes, parentheses, strings in either kind of
// quotes, whole numbers, true, false, null, regular expressions, dotted
// variables, and the functions build.env and env. && binds tighter than ||,
// comparisons tighter than both. What Buildkite's server accepts beyond its
// documentation (a ? b : c, $NAME, lists in brackets) cannot be evaluated here
// and is not checked.
//
// Source: buildkite/docs, pages/pipelines/configure/conditionals.md; for
// precedence, null and type rules also buildkite/conditional.
package condition

import "fmt"

// Vars are what an expression may read.
type Vars struct {
	Values map[string]any    // "build.branch" -> string, bool, float64, []string or nil
	Env    map[string]string // build.env("NAME")
}

// maxExpr bounds an expression, bytes.
const maxExpr = 32 << 10

// maxDepth bounds the nesting of ! and parentheses.
const maxDepth = 100

// An Error says which part of an expression cannot be used, and why.
type Error struct {
	Line   int // from 1
	Column int // in characters, from 1
	Reason string

	Offset int    // of the part, bytes from the beginning
	Name   string // the variable or function, if no such thing exists
	local  bool   // a limit of this package, not of Buildkite's
}

func (e *Error) Error() string {
	if e.Line == 1 {
		return fmt.Sprintf("column %d: %s", e.Column, e.Reason)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// Eval evaluates an expression. All of it is evaluated, even what cannot
// change the outcome, so that a mistake shows in every build.
//
// Errors: [*Error], for syntax, a variable or function that does not exist,
// operands of the wrong type, and an outcome that is not true or false.
func Eval(expr string, vars Vars) (bool, error) {
	if len(expr) > maxExpr {
		return false, &Error{Line: 1, Column: 1, Reason: fmt.Sprintf("got %d bytes, want at most %d", len(expr), maxExpr)}
	}
	p := &parser{lexer: lexer{src: expr}, vars: vars}
	outcome, fault := p.run()
	if fault != nil {
		return false, fault
	}
	return outcome, nil
}

// Check returns what Buildkite refuses in an expression whatever its variables
// hold, nil if there is nothing: broken syntax, and names that do not exist. It
// passes over the rest of an expression that Eval cannot read but Buildkite can.
// In a notification's condition names that begin with "step." exist too.
func Check(expr string, notification bool) *Error {
	p := &parser{lexer: lexer{src: expr}, unvalued: true, notification: notification}
	_, fault := p.run()
	if fault != nil && fault.local {
		return nil
	}
	return fault
}
