package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/pipelines"
)

// all stands for every row that is not switched off.
const all = "ALL"

// evaluateFlags are what render and upload share.
type evaluateFlags struct {
	GPU           []string `name:"gpu" placeholder:"NAME"`
	Image         string   `var:"KERNELBOT_IMAGE"`
	PayloadChunks int      `var:"KERNELBOT_PAYLOAD_CHUNKS"`
}

// render returns the bytes of the evaluate pipeline that the flags and the
// environment ask for. A request that cannot be is wrong usage.
func (f *evaluateFlags) render(env *cli.Env, asJSON bool) ([]byte, error) {
	if err := pipelines.Fleet.Validate(); err != nil {
		return nil, fmt.Errorf("the table of GPU types: %w", err)
	}
	gpus, err := choose(pipelines.Fleet, f.GPU, env)
	if err != nil {
		return nil, err
	}
	if n := f.PayloadChunks; n < 0 || n > generator.MaxPayloadChunks {
		return nil, cli.Usagef("payload chunks: got %d, want 0 to %d", n, generator.MaxPayloadChunks)
	}
	if f.Image != "" {
		if err := pipelines.CheckImage(f.Image); err != nil {
			return nil, cli.WithHint(&cli.UsageError{Err: err}, "the variable for --image is KERNELBOT_IMAGE")
		}
	}
	return generator.Evaluate(generator.Request{
		GPUs:          gpus,
		Image:         f.Image,
		PayloadChunks: f.PayloadChunks,
		JSON:          asJSON,
	})
}

// choose finds the rows that the flags name, or else the environment. Flags
// beat every variable; variables must not contradict each other.
func choose(table pipelines.Table, names []string, env *cli.Env) (pipelines.Table, error) {
	if len(names) == 0 {
		g, err := fromEnvironment(table, env)
		if err != nil {
			return nil, err
		}
		return pipelines.Table{g}, nil
	}
	if len(names) == 1 && strings.EqualFold(names[0], all) {
		return table.Available(), nil
	}
	var chosen pipelines.Table
	seen := map[string]bool{}
	for _, name := range names {
		if strings.EqualFold(name, all) {
			return nil, cli.Usagef("--gpu %s stands for every GPU type, got others beside it", all)
		}
		g, err := table.Lookup(name)
		if err != nil {
			return nil, asUsage(err)
		}
		if seen[g.Name] {
			return nil, cli.Usagef("--gpu %s: given twice", g.Name)
		}
		seen[g.Name] = true
		chosen = append(chosen, g)
	}
	return chosen, nil
}

// fromEnvironment finds the row by KERNELBOT_GPU and by KERNELBOT_QUEUE (older
// launchers: GPU_QUEUE). Those that are set must mean the same row.
func fromEnvironment(table pipelines.Table, env *cli.Env) (pipelines.GPUType, error) {
	var chosen pipelines.GPUType
	var chosenBy string
	for _, source := range []struct {
		variable string
		lookup   func(string) (pipelines.GPUType, error)
	}{
		{"KERNELBOT_GPU", table.Lookup},
		{"KERNELBOT_QUEUE", table.LookupQueue},
		{"GPU_QUEUE", table.LookupQueue},
	} {
		value := env.Getenv(source.variable)
		if value == "" {
			continue
		}
		g, err := source.lookup(value)
		if err != nil {
			return g, asUsage(fmt.Errorf("%s: %w", source.variable, err))
		}
		if chosenBy != "" && g.Name != chosen.Name {
			return g, cli.Usagef("%s says %s, but %s=%q is served by %s", chosenBy, chosen.Name, source.variable, value, g.Name)
		}
		if chosenBy == "" {
			chosen, chosenBy = g, source.variable
		}
	}
	if chosenBy == "" {
		return chosen, cli.WithHint(
			cli.Usagef("no GPU type given, have %s", strings.Join(table.Names(), ", ")),
			"--gpu NAME, or one of the variables KERNELBOT_GPU and KERNELBOT_QUEUE")
	}
	return chosen, nil
}

// asUsage makes asking for what does not exist wrong usage. A row that is
// switched off is not: the request was right.
func asUsage(err error) error {
	if off := new(pipelines.OffError); errors.As(err, &off) {
		return err
	}
	return &cli.UsageError{Err: err}
}
