package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/session"
)

// unblock answers the step that a build waits for, when --unblock names it.
func (c *runCmd) unblock(env *cli.Env, s *session.Session, b engine.Build) error {
	fields := map[string][]string{}
	for _, item := range c.Field {
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			return cli.Usagef("--field %q: want KEY=VALUE", item)
		}
		fields[key] = append(fields[key], value)
	}
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if j.State != engine.JobBlocked {
			continue
		}
		name := j.ShortName(b.Env)
		if !slices.Contains(c.Unblock, "*") && !slices.Contains(c.Unblock, j.StepKey) && !slices.Contains(c.Unblock, j.Label) {
			return cli.WithHint(fmt.Errorf("the build waits at %q for a person", name), "--unblock %q goes on, --unblock '*' at every step that waits", name)
		}
		own := map[string][]string{}
		for _, f := range j.Step.Fields {
			if answers, given := fields[f.Key]; given {
				own[f.Key] = answers
			}
		}
		if _, err := s.Engine.Unblock(j.ID, own, engine.Person{Name: "kblocal run --unblock"}); err != nil {
			return cli.WithHint(fmt.Errorf("step %q: %w", name, err), "--field KEY=VALUE answers")
		}
		fmt.Fprintf(env.Stderr, "kblocal: unblocked %q\n", name)
		return nil
	}
	return fmt.Errorf("the build waits, and no step of it does")
}
