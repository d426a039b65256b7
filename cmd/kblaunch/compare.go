package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/verdict"
	"github.com/gpu-mode/kbgen/verdict/comparison"
)

// compareCmd compares the times of two results, case by case.
type compareCmd struct {
	Older string `arg:"" name:"old"`
	Newer string `arg:"" name:"new"`
	JSON  bool   `name:"json" help:"print JSON (kbgen schema compare)"`
	clientFlags
}

func (c *compareCmd) Run(ctx context.Context, env *cli.Env) error {
	var sides [2]*verdict.Verdict
	var client *launcher.Client
	for i, name := range []string{c.Older, c.Newer} {
		result, err := readResult(name)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		if result == nil {
			if client == nil {
				if client, err = c.client(env); err != nil {
					return cli.WithHint(err, "%s is no file, so it would be a build or a run; for those put a token into %s", name, tokenVar)
				}
			}
			if result, err = fetchResult(ctx, client, name); err != nil {
				return err
			}
		}
		sides[i] = verdict.Of(result)
	}
	compared, err := comparison.Compare(sides[0], sides[1])
	if err != nil {
		return &cli.ExitError{Status: exitTrouble, Err: err}
	}
	compared.Old.Name, compared.New.Name = c.Older, c.Newer
	if c.JSON {
		return cli.PrintJSON(env.Stdout, compared)
	}
	return compared.Write(env.Stdout)
}

// readResult reads a result.json, or what submit --json printed of one run; nil
// when there is no such file.
func readResult(name string) (*schema.Result, error) {
	data, err := readFile(name, schema.MaxResult)
	if os.IsNotExist(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var doc documentJSON
	if json.Unmarshal(data, &doc) == nil && len(doc.Runs) > 0 {
		if len(doc.Runs) > 1 || doc.Runs[0].Result == nil {
			return nil, fmt.Errorf("%s: got %d runs, want one with a result", name, len(doc.Runs))
		}
		data = doc.Runs[0].Result
	}
	result, err := schema.DecodeResult(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return result, nil
}

func fetchResult(ctx context.Context, client *launcher.Client, name string) (*schema.Result, error) {
	run, err := open(ctx, client, name)
	if err != nil {
		return nil, err
	}
	e := collect(ctx, client, []*launcher.Run{run}, nil)[0]
	if e.err != nil {
		return nil, trouble(ctx, e.err)
	}
	return e.report.Result, nil
}
