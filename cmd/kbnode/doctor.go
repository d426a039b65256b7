package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/trial"
)

// doctorCmd says what is wrong with this machine.
type doctorCmd struct {
	Slot      string `placeholder:"NAME" help:"check only this slot and what it depends on"`
	Preflight bool   `help:"check what must hold before an agent starts, in two seconds; the agents' units run it inside the slot's slice"`
	Deep      bool   `help:"start a container in every slot at once, try in it what a submission must not be able to do, and read its limits from outside; a slot that has a job is left alone"`
	Submit    bool   `help:"have a right and a wrong submission judged through Buildkite; needs BUILDKITE_API_TOKEN, _ORG and _PIPELINE, as kblaunch does"`
	All       bool   `help:"also list the checks that passed"`
	JSON      bool   `name:"json" help:"print one JSON document; schema: schema/published/node-doctor.json"`
}

// preflightLimit bounds what keeps an agent from starting. A driver that takes
// longer to answer is a fault of its own.
const preflightLimit = time.Minute

func (c *doctorCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Preflight && (c.Slot == "" || c.Deep || c.Submit) {
		return cli.Usagef("--preflight is for one slot (--slot NAME), and without --deep and --submit")
	}
	config, err := node.ReadConfig("/")
	if err != nil {
		return err
	}
	var named []string
	if c.Slot != "" {
		named = []string{c.Slot}
	}
	slots, err := config.Pick(named)
	if err != nil {
		return cli.Usagef("--%w", err)
	}
	if c.Preflight {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, preflightLimit)
		defer cancel()
	}
	d := doctor.Diagnosis{Node: config.Node, Checks: doctor.Run(ctx, doctor.Host(), config, slots, c.Preflight)}
	if c.Deep {
		d.Checks = append(d.Checks, trial.Containers(ctx, config, slots)...)
	}
	if c.Submit {
		client, err := submitter(env)
		if err != nil {
			return err
		}
		d.Checks = append(d.Checks, trial.Submit(ctx, client, slots)...)
	}
	d.OK = d.Count(doctor.Failure) == 0
	err = printDiagnosis(env, &d, c.JSON, c.All)
	if err == nil && !d.OK {
		err = failed(&d)
	}
	return err
}

func printDiagnosis(env *cli.Env, d *doctor.Diagnosis, json, all bool) error {
	if json {
		return cli.PrintJSON(env.Stdout, d)
	}
	d.Write(env.Stdout, all)
	return nil
}

// submitter returns the client that doctor --submit uses, as kblaunch's variables say.
func submitter(env *cli.Env) (*launcher.Client, error) {
	token := env.Getenv("BUILDKITE_API_TOKEN")
	if token == "" {
		return nil, cli.Usagef("--submit: BUILDKITE_API_TOKEN is not set; want a token with write_builds, read_builds and read_artifacts")
	}
	client, err := launcher.New(launcher.Options{
		BaseURL: cmp.Or(env.Getenv("KBLAUNCH_API_URL"), "https://api.buildkite.com/"), Token: token,
		Org: cmp.Or(env.Getenv("BUILDKITE_ORG"), "gpu-mode"), Pipeline: cmp.Or(env.Getenv("BUILDKITE_PIPELINE"), "kernelbot"), UserAgent: "kbnode/" + cli.Version(),
	})
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return client, nil
}

// verifyCmd proves the machine with jobs.
type verifyCmd struct {
	Slots   []string      `arg:"" optional:"" name:"slot"`
	Timeout time.Duration `default:"20m" placeholder:"DURATION" help:"how long the whole verification may take"`
	JSON    bool          `name:"json" help:"print one JSON document; schema: schema/published/node-doctor.json"`
}

func (c *verifyCmd) Run(ctx context.Context, env *cli.Env) error {
	config, slots, err := picked(c.Slots)
	if err != nil {
		return err
	}
	// A terminal that goes away must not leave the agents turned away.
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	results, tried, err := trial.Verify(ctx, config, slots, logger(env))
	if err != nil {
		return err
	}
	d := doctor.Diagnosis{Node: config.Node, Checks: results}
	d.OK = tried > 0 && d.Count(doctor.Failure) == 0
	switch err = printDiagnosis(env, &d, c.JSON, true); {
	case err != nil || d.OK:
	case tried == 0:
		err = errors.New("no slot can be tried")
	default:
		err = errors.New("this machine does not keep what its slots promise")
	}
	return err
}
