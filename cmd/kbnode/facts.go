package main

import (
	"context"
	"errors"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node/facts"
)

// factsCmd prints what the machine is.
type factsCmd struct {
	Root string `placeholder:"DIR"`
}

func (c *factsCmd) Run(ctx context.Context, env *cli.Env) error {
	f, err := facts.Read(ctx, factsMachine(c.Root))
	if err != nil {
		return err
	}
	return cli.PrintJSON(env.Stdout, f)
}

// askLimit bounds one question: nvidia-smi takes seconds where it must load the driver.
const askLimit = 30 * time.Second

// factsMachine is this machine, or the files of another below root, whose programs
// are not asked: they would speak of this one.
func factsMachine(root string) facts.Machine {
	if root != "" && root != "/" {
		return facts.Machine{
			Root: root,
			Run: func(context.Context, string, ...string) ([]byte, error) {
				return nil, errors.New("not asked, for --root")
			},
			Look: func(string) (string, bool) { return "", false },
		}
	}
	return facts.Machine{
		Look: look,
		Run: func(ctx context.Context, name string, args ...string) ([]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, askLimit)
			defer cancel()
			return runProgram(ctx, name, args...)
		},
	}
}
