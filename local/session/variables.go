package session

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// ReadEnvFile reads lines NAME=VALUE as docker's --env-file does: the value is
// what follows, without quotes or escapes; a name alone takes its value from
// kblocal's own environment, if it is there; # begins a comment line.
func ReadEnvFile(into map[string]string, file string, lookup func(string) (string, bool)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimLeft(lines.Text(), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, given := strings.Cut(line, "=")
		if name == "" || strings.ContainsAny(name, " \t") {
			return fmt.Errorf("%s:%d: want NAME=VALUE or NAME", file, n) // the line may hold a secret
		}
		if !given {
			if value, given = lookup(name); !given {
				continue
			}
		}
		into[name] = strings.TrimSuffix(value, "\r")
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
