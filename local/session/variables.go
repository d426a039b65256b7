package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/local/steps"
)

// variables are the build's: of the files, in order, and over them --env.
func (c *runCmd) variables(env *cli.Env) (map[string]string, error) {
	out := map[string]string{}
	for _, file := range c.EnvFile {
		if err := readEnvFile(out, file, env.LookupEnv); err != nil {
			return nil, fmt.Errorf("--env-file: %w", err)
		}
	}
	for _, item := range c.Env {
		name, value, ok := strings.Cut(item, "=")
		if !ok || name == "" {
			return nil, cli.Usagef("--env %q: want NAME=VALUE", item)
		}
		out[name] = value
	}
	if err := steps.CheckEnv(out); err != nil {
		return nil, cli.Usagef("--env: %v", err)
	}
	return out, nil
}

// secrets is the secret store: of the files, in order.
func (f *stateFlags) secrets(env *cli.Env) (map[string]string, error) {
	out := map[string]string{}
	for _, file := range f.Secrets {
		if err := readEnvFile(out, file, env.LookupEnv); err != nil {
			return nil, fmt.Errorf("--secrets-file: %w", err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(out)) {
		if err := steps.CheckSecretKey(key); err != nil {
			return nil, cli.Usagef("--secrets-file: a secret's name: %v", err)
		}
	}
	return out, nil
}

// readEnvFile reads lines NAME=VALUE as docker's --env-file does: the value is
// what follows, without quotes or escapes; a name alone takes its value from
// kblocal's own environment, if it is there; # begins a comment line.
func readEnvFile(into map[string]string, file string, lookup func(string) (string, bool)) error {
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
