package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/audit"
	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/node/disk"
	"github.com/gpu-mode/kbgen/node/drain"
	"github.com/gpu-mode/kbgen/node/gate"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/node/proxy"
	"github.com/gpu-mode/kbgen/node/step"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/schema"
)

// gateCmd decides about a job, in the hook pre-bootstrap.
type gateCmd struct {
	Root string `default:"/" placeholder:"DIR" help:"the config and /sys lie below DIR; for tests"`
}

func (c *gateCmd) Run(_ context.Context, env *cli.Env) error {
	config, s, err := gate.OwnSlot(c.Root, env.Getenv(gate.SlotVariable))
	if err != nil {
		return err
	}
	_, err = gate.Admit(c.Root, config, s, env.Getenv(gate.JobVariable))
	if err != nil && gate.BootsHere(c.Root, config, s) {
		// The job's log shows what its bootstrap says, and nothing of a hook's.
		fmt.Fprintf(env.Stderr, "kbnode: left to kbnode bootstrap: %v\n", err)
		return nil
	}
	return statusOf(err)
}

// statusOf gives an error the exit status by which Buildkite's retry rules tell a
// job that is refused from a slot that is not fit for it.
func statusOf(err error) error {
	switch {
	case errors.As(err, new(*gate.Refusal)):
		return &cli.ExitError{Status: schema.ExitConfig, Err: err}
	case errors.As(err, new(*gate.UnfitError)):
		return &cli.ExitError{Status: schema.ExitTempFail, Err: err}
	}
	return err
}

// bootstrapCmd runs a job.
type bootstrapCmd struct {
	Root string `default:"/" placeholder:"DIR" help:"the config and the slot lie below DIR; for tests"`
}

func (c *bootstrapCmd) Run(ctx context.Context, env *cli.Env) error {
	config, s, err := gate.OwnSlot(c.Root, env.Getenv(gate.SlotVariable))
	if err != nil {
		return err
	}
	job, err := gate.Admit(c.Root, config, s, env.Getenv(gate.JobVariable))
	if err != nil {
		return statusOf(err)
	}
	runner := &step.Runner{Config: config, Slot: s, Root: c.Root, Environ: env.Environ(), Log: env.Stdout, Report: audit.Report}
	if c.Root != "/" {
		runner.Report = func(audit.Record) error { return nil }
	}
	if job.Container != nil {
		if err := job.Unseal(ctx, filepath.Join(c.Root, client.Socket), runner.Token); err != nil {
			fmt.Fprintf(env.Stderr, "kbnode: the payload stays sealed: %v\n", err)
		}
	}
	status, err := runner.Run(ctx, job)
	if err == nil && status != 0 {
		return &cli.ExitError{Status: status}
	}
	return statusOf(err)
}

// readyCmd checks a slot before its agent registers.
type readyCmd struct {
	Root string `default:"/" placeholder:"DIR" help:"the config and the slot lie below DIR; for tests"`
}

func (c *readyCmd) Run(ctx context.Context, env *cli.Env) error {
	_, s, err := gate.OwnSlot(c.Root, env.Getenv(gate.SlotVariable))
	if err != nil {
		return err
	}
	return step.Ready(ctx, s, c.Root, s.Platform == plan.Docker)
}

// slotFlags say which slot a command is for.
type slotFlags struct {
	Slot   string `required:"" placeholder:"NAME" help:"the slot"`
	Engine string `placeholder:"PATH" help:"the engine's socket; default the config's"`
	Root   string `default:"/" placeholder:"DIR" help:"the config, pins and slots lie below DIR; for tests"`
}

// find returns the slot, whose engine is in Engine afterwards.
func (f *slotFlags) find() (*node.Slot, error) {
	config, err := node.ReadConfig(f.Root)
	if err != nil {
		return nil, err
	}
	f.Engine = cmp.Or(f.Engine, config.Docker.Socket)
	return config.Slot(f.Slot)
}

// proxyCmd is a slot's docker socket.
type proxyCmd struct {
	slotFlags
	Socket string `placeholder:"PATH" help:"listen on PATH instead; only its owner may connect"`
}

func (c *proxyCmd) Run(ctx context.Context, env *cli.Env) error {
	s, err := c.find()
	if err != nil {
		return err
	}
	if c.Engine == "" {
		return fmt.Errorf("slot %s: there is no docker engine in %s", s.Name, node.ConfigPath)
	}
	u, err := system.LookupUser(s.User)
	if err != nil {
		return fmt.Errorf("slot %s: %w", s.Name, err)
	}
	if s.JobUser == "" {
		return fmt.Errorf("slot %s: no job_user in %s: kbnode apply FILE", s.Name, node.ConfigPath)
	}
	job, err := system.LookupUser(s.JobUser)
	if err != nil {
		return fmt.Errorf("slot %s: %w", s.Name, err)
	}
	proofs := filepath.Join(c.Root, node.ProofsDir)
	if _, err := os.Stat(proofs); err != nil { // kbnode apply makes it
		proofs = ""
	}
	logger := log.New(env.Stderr, "", 0) // the journal has the time
	p, err := proxy.New(proxy.Options{
		Slot: s, UID: u.UID, GID: u.GID, JobUID: job.UID, Engine: c.Engine, TempDir: filepath.Join(c.Root, s.TempDir()), Proofs: proofs,
		Pins: func() (*node.Pins, error) { return node.ReadPins(c.Root) },
		Ended: func(ctx context.Context) error {
			if c.Root != "/" {
				return nil
			}
			return drain.CheckDevices(ctx, s)
		},
		Stuck: func(ctx context.Context, why error) {
			if c.Root != "/" {
				return
			}
			if err := drain.Retire(context.WithoutCancel(ctx), s, why); err != nil {
				logger.Print(err)
			}
		},
		Audit: func(r audit.Record) error { return audit.Append(c.Root, r) },
		Log:   logger.Printf,
	})
	if err != nil {
		return err
	}
	l, err := proxy.Listen(c.Socket)
	if err != nil {
		return public(err)
	}
	return p.Serve(ctx, l, logger)
}

// diskCmd makes the image of a slot's disk.
type diskCmd struct {
	slotFlags
}

func (c *diskCmd) Run(ctx context.Context, _ *cli.Env) error {
	s, err := c.find()
	if err != nil {
		return err
	}
	u, err := system.LookupUser(s.User)
	if err != nil {
		return fmt.Errorf("slot %s: %w", s.Name, err)
	}
	return disk.Make(ctx, s, u.UID, u.GID, c.Root, system.Run)
}

// invocationVariable names the variable in which systemd passes a unit's invocation ID
// to its programs.
const invocationVariable = "INVOCATION_ID"

// reapCmd removes what a slot's jobs left behind, and records the job of a slot without
// containers.
type reapCmd struct {
	slotFlags
	Timeout    time.Duration `default:"2m" placeholder:"DURATION" help:"how long to wait for the engine"`
	Journalctl string        `default:"journalctl" placeholder:"PATH" help:"the program that reads the journal; for tests"`
}

func (c *reapCmd) Run(ctx context.Context, env *cli.Env) error {
	s, err := c.find()
	if err != nil {
		return err
	}
	// The unit's stop waits for this, and an engine that hangs says nothing.
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var unrecorded error
	if s.Platform == plan.Host && env.Getenv(invocationVariable) != "" { // by hand there is none
		unrecorded = audit.Collect(ctx, c.Root, s.Name, env.Getenv(invocationVariable), c.Journalctl)
	}
	n, err := proxy.Reap(ctx, s, c.Engine, c.Root)
	if n > 0 {
		fmt.Fprintf(env.Stderr, "kbnode: slot %s: %d containers were left by its jobs\n", s.Name, n)
	}
	return errors.Join(unrecorded, err)
}
