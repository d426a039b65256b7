package cli

import (
	"reflect"
	"slices"
)

const debugFlag = "--debug"

// debug returns env without --debug, and noted that it was asked for.
// A command that hands its words to another program keeps them: that one has a
// --debug of its own.
func (p Program) debug(env *Env) *Env {
	inner := *env
	mine := len(env.Args)
	if end := slices.Index(env.Args, "--"); end >= 0 {
		mine = end
	}
	if mine > 0 {
		if f, known := command(reflect.TypeOf(p.Grammar).Elem(), env.Args[0]); known {
			if _, passes := f.Tag.Lookup("passthrough"); passes {
				mine = 0
			}
		}
	}
	at := slices.Index(env.Args[:mine], debugFlag)
	if at < 0 {
		return &inner
	}
	own := slices.DeleteFunc(slices.Clone(env.Args[:mine]), func(arg string) bool { return arg == debugFlag })
	inner.Args = append(own, env.Args[mine:]...)
	inner.Debug = true
	return &inner
}

// command returns the command of that name that a grammar has.
func command(grammar reflect.Type, word string) (reflect.StructField, bool) {
	for f := range fields(grammar) {
		if isCommand(f) && name(f) == word {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
