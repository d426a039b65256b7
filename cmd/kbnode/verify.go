package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/trial"
)

// verifyCmd proves the machine with jobs.
type verifyCmd struct {
	Slots   []string      `arg:"" optional:"" name:"slot"`
	Timeout time.Duration `default:"20m" placeholder:"DURATION" help:"how long the whole verification may take"`
	JSON    bool          `name:"json" help:"print one JSON document; schema: schema/published/node-doctor.json"`
}

func (c *verifyCmd) Run(ctx context.Context, env *cli.Env) error {
	slots, err := picked(c.Slots)
	if err != nil {
		return err
	}
	config, err := node.ReadConfig("/")
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
	d := doctor.Diagnosis{Node: config.Node, OK: tried > 0 && doctor.Worst(results) != doctor.Failure, Checks: results}
	if c.JSON {
		err = cli.PrintJSON(env.Stdout, d)
	} else {
		d.Write(env.Stdout, true)
	}
	switch {
	case err != nil || d.OK:
	case tried == 0:
		err = errors.New("no slot can be tried")
	default:
		err = errors.New("this machine does not keep what its slots promise")
	}
	return err
}
