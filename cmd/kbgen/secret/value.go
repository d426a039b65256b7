package secret

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/secrets"
)

// readValue takes the value to seal: from a file, byte for byte; from a
// terminal, without showing it; or from standard input, byte for byte.
func readValue(env *cli.Env, name, file string) ([]byte, error) {
	if file == "" {
		if f, ok := env.Stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return askValue(env, f, name)
		}
		file = "-"
	}
	value, err := readFile(env, file)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	if len(value) == 0 || len(value) > secrets.MaxValue {
		return nil, cli.Usagef("the value of %s: got %d bytes, want 1 to %d", name, len(value), secrets.MaxValue)
	}
	if file == "-" && bytes.HasSuffix(value, []byte("\n")) && bytes.Count(value, []byte("\n")) == 1 {
		fmt.Fprintf(env.Stderr, "kbgen: note: the value ends in a line end, which is sealed with it; printf %%s has none\n")
	}
	return value, nil
}

// askValue asks at a terminal, twice: what nobody sees, nobody proof-reads.
func askValue(env *cli.Env, terminal *os.File, name string) ([]byte, error) {
	ask := func(prompt string) ([]byte, error) {
		fmt.Fprint(env.Stderr, prompt)
		value, err := term.ReadPassword(int(terminal.Fd()))
		fmt.Fprintln(env.Stderr)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return value, err
	}
	first, err := ask("Value of " + name + " (not shown): ")
	if err != nil {
		return nil, fmt.Errorf("reading the value: %w", err)
	}
	if len(first) == 0 {
		return nil, cli.WithHint(cli.Usagef("the value of %s: got nothing", name), "a value of several lines comes from a file: --file PATH")
	}
	second, err := ask("Once more: ")
	if err != nil {
		return nil, fmt.Errorf("reading the value: %w", err)
	}
	if !bytes.Equal(first, second) {
		return nil, cli.Usagef("the value of %s: got two different ones", name)
	}
	return first, nil
}
