// Package condition evaluates the if expressions of steps.
package condition

// Vars are what an expression may read.
type Vars struct {
	Values map[string]any    // "build.branch" -> string, bool, float64, []string or nil
	Env    map[string]string // build.env("NAME")
}

// Eval evaluates an expression.
func Eval(expr string, vars Vars) (bool, error) { panic("being written") }
