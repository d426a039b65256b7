package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
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
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, heading)
	for _, one := range list {
		fmt.Fprintln(table, row(one))
	}
	return table.Flush()
}

// ReadInput reads a file, or standard input for "-", of at most limit bytes.
func ReadInput(stdin io.Reader, name string, limit int64) ([]byte, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: more than %d bytes", name, limit)
	}
	return data, err
}
