package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
)

// all stands for every row that is not switched off.
const all = "ALL"

// pipelineFlags are what all commands about a pipeline share: its name, and
// what the build is for. A flag beats its variable.
type pipelineFlags struct {
	Pipeline string `arg:"" optional:""`
	requestFlags
}

// requestFlags say what the build is for.
//
// The variables of a build, all optional but the first or second:
//
//	KERNELBOT_GPU              GPU type, or several with commas between them
//	KERNELBOT_QUEUE            queue; GPU_QUEUE in older launchers
//	KERNELBOT_MODE             mode of the run: decides the priority
//	KERNELBOT_RUN_ID           id of the run; with several GPU types each job
//	                           gets ID.GPU
//	KERNELBOT_PAYLOAD_CHUNKS   number of KERNELBOT_PAYLOAD_<i>
//	KERNELBOT_TIMEOUT_SECONDS  what the payload's phases may legally take in
//	                           all; decides the step's timeout
//	KERNELBOT_USER             whose submission it is: bounds how many run at once
//	KERNELBOT_IMAGE            replaces the rows' image
//	KERNELBOT_SECRET_RUN_ID    id of a second run in the same build; its
//	                           KERNELBOT_SECRET_PAYLOAD (or _<i> and _CHUNKS), _MODE
//	                           and _TIMEOUT_SECONDS go with it
//
// kbgen reads no payload. The steps name its variables; jobs find the values
// in the build's environment.
type requestFlags struct {
	GPU           []string `name:"gpu" placeholder:"NAME"`
	IncludeOff    bool     `name:"include-off"`
	Image         string   `var:"KERNELBOT_IMAGE"`
	PayloadChunks int      `var:"KERNELBOT_PAYLOAD_CHUNKS"`
	Mode          string   `var:"KERNELBOT_MODE"`
	RunID         string   `name:"run-id" var:"KERNELBOT_RUN_ID"`
	User          string   `var:"KERNELBOT_USER"`
	Seconds       string   `name:"timeout-seconds" var:"KERNELBOT_TIMEOUT_SECONDS"`
	Static        bool
}

// find returns the pipeline asked for.
func (f *pipelineFlags) find() (pipelines.Pipeline, error) {
	if f.Pipeline == "" {
		var names []string
		for _, p := range pipelines.Pipelines {
			names = append(names, p.Name)
		}
		return pipelines.Pipeline{}, cli.Usagef("no pipeline given, have %s", strings.Join(names, ", "))
	}
	p, err := pipelines.Find(f.Pipeline)
	return p, asUsage(err)
}

// request is what the flags and the environment ask of p. What cannot be is
// wrong usage.
func (f *requestFlags) request(p pipelines.Pipeline, env *cli.Env) (r pipelines.Request, err error) {
	if err := errors.Join(pipelines.Fleet.Validate(), pipelines.Helpers.Validate()); err != nil {
		return r, fmt.Errorf("the table of GPU types: %w", err)
	}
	table := pipelines.Fleet
	if f.IncludeOff {
		table = table.On()
	}
	if len(f.GPU) > 0 || p.NeedsGPUs || f.Static {
		if r.GPUs, err = choose(table, p, f.GPU, env); err != nil {
			return r, err
		}
	}
	if f.Static && len(r.GPUs) != 1 {
		return r, cli.Usagef("--static: got %d GPU types, want one: the step is for its queue alone", len(r.GPUs))
	}
	r.Image, r.Static = f.Image, f.Static
	if f.Image != "" {
		if err := pipelines.CheckImage(f.Image); err != nil {
			return r, cli.WithHint(&cli.UsageError{Err: err}, "the variable for --image is KERNELBOT_IMAGE")
		}
	}
	if f.Static {
		return r, nil // it serves every build: nothing of this one belongs there
	}
	r.User = f.User
	r.Run = pipelines.Run{ID: f.RunID, Mode: f.Mode, PayloadChunks: f.PayloadChunks}
	if r.Run.Budget, err = seconds(schema.EnvTimeoutSeconds, f.Seconds); err == nil {
		r.Secret, err = secretRun(env)
	}
	for _, run := range []*pipelines.Run{&r.Run, r.Secret} {
		if run == nil || err != nil {
			continue
		}
		err = asUsage(pipelines.CheckMode(run.Mode))
		if n := run.PayloadChunks; n < 0 || n > schema.MaxChunks {
			err = cli.Usagef("payload chunks: got %d, want 0 to %d", n, schema.MaxChunks)
		}
	}
	return r, err
}

// secretRun is the build's second run; nil when it has none. It is named by
// variables only: a person has no use for it.
func secretRun(env *cli.Env) (*pipelines.Run, error) {
	run := pipelines.Run{ID: env.Getenv(schema.SecretEnv(schema.EnvRunID)), Mode: env.Getenv(schema.SecretEnv(schema.EnvMode))}
	if run.ID == "" {
		return nil, nil
	}
	var err error
	if text := env.Getenv(schema.SecretEnv(schema.EnvPayloadChunks)); text != "" {
		if run.PayloadChunks, err = strconv.Atoi(text); err != nil {
			return nil, cli.Usagef("KERNELBOT_SECRET_PAYLOAD_CHUNKS: got %.40q, want a number", text)
		}
	}
	run.Budget, err = seconds(schema.SecretEnv(schema.EnvTimeoutSeconds), env.Getenv(schema.SecretEnv(schema.EnvTimeoutSeconds)))
	return &run, err
}

// seconds reads whole seconds; empty is none said.
func seconds(name, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 86400 {
		return 0, cli.Usagef("%s: got %.40q, want whole seconds, 1 to 86400", name, text)
	}
	return time.Duration(n) * time.Second, nil
}

// choose finds the rows that the flags name, or else the environment. Flags
// beat every variable; variables must not contradict each other.
func choose(table pipelines.Table, p pipelines.Pipeline, names []string, env *cli.Env) (pipelines.Table, error) {
	if len(names) == 0 {
		return fromEnvironment(table, env)
	}
	if len(names) == 1 && strings.EqualFold(names[0], all) {
		var served pipelines.Table
		for _, g := range table.Available() {
			if p.Serves == nil || p.Serves(g) {
				served = append(served, g)
			}
		}
		return served, nil
	}
	return lookup(table, names, "--gpu")
}

// lookup finds the rows of several names, each once.
func lookup(table pipelines.Table, names []string, what string) (pipelines.Table, error) {
	var chosen pipelines.Table
	seen := map[string]bool{}
	for _, name := range names {
		if strings.EqualFold(name, all) {
			return nil, cli.Usagef("%s %s stands for every GPU type, got others beside it", what, all)
		}
		g, err := table.Lookup(name)
		if err != nil {
			return nil, asUsage(err)
		}
		if seen[g.Name] {
			return nil, cli.Usagef("%s %s: given twice", what, g.Name)
		}
		seen[g.Name] = true
		chosen = append(chosen, g)
	}
	return chosen, nil
}

// fromEnvironment finds the rows by KERNELBOT_GPU (one, or several with commas)
// and by KERNELBOT_QUEUE (older launchers: GPU_QUEUE). A queue that is set must
// mean the same row.
func fromEnvironment(table pipelines.Table, env *cli.Env) (pipelines.Table, error) {
	if list := env.Getenv(schema.EnvGPU); strings.Contains(list, ",") {
		chosen, err := lookup(table, strings.Split(list, ","), schema.EnvGPU)
		if usage := new(cli.UsageError); errors.As(err, &usage) && !strings.HasPrefix(err.Error(), schema.EnvGPU) {
			err = cli.Usagef("KERNELBOT_GPU: %w", err)
		}
		return chosen, err
	}
	var chosen pipelines.GPUType
	var chosenBy string
	for _, source := range []struct {
		variable string
		lookup   func(string) (pipelines.GPUType, error)
	}{
		{schema.EnvGPU, table.Lookup},
		{schema.EnvQueue, table.LookupQueue},
		{schema.EnvOldQueue, table.LookupQueue},
	} {
		value := env.Getenv(source.variable)
		if value == "" {
			continue
		}
		g, err := source.lookup(value)
		if err != nil {
			return nil, asUsage(fmt.Errorf("%s: %w", source.variable, err))
		}
		if chosenBy != "" && g.Name != chosen.Name {
			return nil, cli.Usagef("%s says %s, but %s=%q is served by %s", chosenBy, chosen.Name, source.variable, value, g.Name)
		}
		if chosenBy == "" {
			chosen, chosenBy = g, source.variable
		}
	}
	if chosenBy == "" {
		return nil, cli.WithHint(
			cli.Usagef("no GPU type given, have %s", strings.Join(table.Names(), ", ")),
			"--gpu NAME, or one of the variables KERNELBOT_GPU and KERNELBOT_QUEUE")
	}
	return pipelines.Table{chosen}, nil
}

// asUsage makes asking for what does not exist wrong usage. A row that is
// switched off is not: the request was right.
func asUsage(err error) error {
	if off := new(pipelines.OffError); err == nil || errors.As(err, &off) {
		return err
	}
	return &cli.UsageError{Err: err}
}

// Exit statuses beside those that all commands share.
const (
	exitCheck   = 3 // what was rendered, or given, did not pass the checks
	exitDrift   = 4 // goldens are not what is rendered
	exitRefused = 5 // the agent did not upload
)

// withStatus gives an error of the generator its exit status.
func withStatus(err error) error {
	if check := new(generator.CheckError); errors.As(err, &check) {
		return &cli.ExitError{Status: exitCheck, Err: err}
	}
	return err
}
