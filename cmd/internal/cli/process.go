package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"syscall"
)

// Main runs a program as this process, which an interrupt or SIGTERM asks to end,
// and returns its exit status.
func Main(p Program) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return p.Run(ctx, Process())
}

// Process is the outside world of this process.
func Process() *Env {
	return &Env{
		Args:      os.Args[1:],
		LookupEnv: os.LookupEnv,
		Environ:   os.Environ,
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
	}
}

// PrintJSON writes v for programs: indented, "<" and "&" as they are.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// PrintList prints a list as JSON, or as a table: a heading, and a row for each
// element, with tabs between the columns.
func PrintList[T any](w io.Writer, asJSON bool, list []T, heading string, row func(T) string) error {
	if asJSON {
		return PrintJSON(w, append([]T{}, list...))
	}
	rows := []string{heading}
	for _, one := range list {
		rows = append(rows, row(one))
	}
	return WriteTable(w, rows)
}

// ReadInput reads a file, or standard input for "-", of at most limit bytes.
func ReadInput(stdin io.Reader, name string, limit int64) ([]byte, error) {
	data, err := ReadStart(stdin, name, limit+1)
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: more than %d bytes", name, limit)
	}
	return data, err
}

// ReadStart reads a file, or standard input for "-", up to limit bytes of it.
func ReadStart(stdin io.Reader, name string, limit int64) ([]byte, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	return io.ReadAll(io.LimitReader(in, limit))
}

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
	for f := range grammar.Fields() {
		if isCommand(f) && name(f) == word {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
