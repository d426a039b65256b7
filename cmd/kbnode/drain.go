package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/drain"
	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/setup"
	"github.com/gpu-mode/kbgen/node/status"
	"github.com/gpu-mode/kbgen/schema/text"
)

// drainCmd keeps slots from taking jobs.
type drainCmd struct {
	Slots   []string      `arg:"" optional:"" name:"slot"`
	Reason  string        `default:"drained by hand" placeholder:"TEXT" help:"the reason that status and doctor show"`
	Timeout time.Duration `default:"0" placeholder:"DURATION" help:"stop waiting after that long and exit 1, while the jobs go on; 0: wait for the last job"`
	NoWait  bool          `help:"do not wait for the jobs"`
}

func (c *drainCmd) Run(ctx context.Context, env *cli.Env) error {
	_, slots, err := picked(c.Slots)
	if err != nil {
		return err
	}
	if c.Timeout < 0 {
		return cli.Usagef("--timeout: got %v, want 0 (as long as the last job takes) or more", c.Timeout)
	}
	if err := drain.Stop(ctx, slots, c.Reason, !c.NoWait, c.Timeout); err != nil {
		return err
	}
	for _, s := range slots {
		state := "takes no jobs"
		if c.NoWait {
			state = "takes no further jobs; the one that runs ends"
		}
		fmt.Fprintf(env.Stdout, "%s: %s (%s)\n", s.Name, state, text.Line(c.Reason, 200))
	}
	return nil
}

// resumeCmd lets slots take jobs again.
type resumeCmd struct {
	Slots []string `arg:"" optional:"" name:"slot"`
}

func (c *resumeCmd) Run(ctx context.Context, env *cli.Env) error {
	_, slots, err := picked(c.Slots)
	if err != nil {
		return err
	}
	return drain.Resume(ctx, slots, func(s *node.Slot) { fmt.Fprintf(env.Stdout, "%s: takes jobs\n", s.Name) })
}

// picked reads the config, and returns it and its slots of these names, all for none.
func picked(names []string) (*node.Config, []*node.Slot, error) {
	if os.Geteuid() != 0 {
		return nil, nil, errors.New("want root: sudo kbnode")
	}
	config, err := node.ReadConfig("/")
	if err != nil {
		return nil, nil, err
	}
	slots, err := config.Pick(names)
	if err != nil {
		return nil, nil, cli.Usagef("%w", err)
	}
	return config, slots, nil
}

// watchCmd looks after the slots between jobs; a timer starts it each minute.
type watchCmd struct {
	TextFile string `placeholder:"FILE" help:"the file for the figures; its name ends in .prom"`
}

func (c *watchCmd) Run(ctx context.Context, env *cli.Env) error {
	config, err := node.ReadConfig("/")
	if err != nil {
		return err
	}
	err = drain.Watch(ctx, config, logger(env))
	if c.TextFile != "" && ctx.Err() == nil {
		err = errors.Join(err, status.WriteMetrics(ctx, doctor.Host(), config, c.TextFile))
	}
	return err
}

// prepareCmd waits until the drivers have made the slots' device nodes.
type prepareCmd struct {
	Wait time.Duration `default:"2m" placeholder:"DURATION" help:"how long to wait at most"`
}

func (c *prepareCmd) Run(ctx context.Context, env *cli.Env) error {
	config, err := node.ReadConfig("/")
	if err != nil {
		return err
	}
	return drain.AwaitDevices(ctx, config, c.Wait, logger(env))
}

// public turns errors of package node into those that the command line knows.
func public(err error) error {
	if _, ok := errors.AsType[*node.UsageError](err); ok {
		err = &cli.UsageError{Err: err}
	}
	if hint, ok := errors.AsType[*node.HintError](err); ok {
		err = &cli.HintError{Err: err, Hint: hint.Hint}
	}
	return err
}

// logger returns a function that prints a line on stderr.
func logger(env *cli.Env) func(format string, args ...any) {
	return func(format string, args ...any) { fmt.Fprintf(env.Stderr, "kbnode: "+format+"\n", args...) }
}

// statusCmd says what the slots do now.
type statusCmd struct {
	JSON bool `name:"json" help:"print one JSON document, with tags, images, memory; schema: schema/published/node-status.json"`
}

func (c *statusCmd) Run(ctx context.Context, env *cli.Env) error {
	config, err := node.ReadConfig("/")
	if err != nil {
		return err
	}
	st, err := status.Read(ctx, doctor.Host(), config)
	if err != nil {
		return err
	}
	if c.JSON {
		return cli.PrintJSON(env.Stdout, st)
	}
	fmt.Fprintln(env.Stdout, st.Settings())
	fmt.Fprintf(env.Stdout, "%-8s %-12s %-9s %-9s %-36s %s\n", "SLOT", "QUEUE", "STATE", "RESTARTS", "JOB", "DEVICE")
	for _, s := range st.Slots {
		fmt.Fprintf(env.Stdout, "%-8s %-12s %-9s %-9d %-36s %s\n", s.Name, s.Queue, s.State, s.Restarts, cmp.Or(s.Job, "-"), s.Device)
		if s.Reason != "" {
			fmt.Fprintf(env.Stdout, "         %s\n", s.Reason)
		}
	}
	for _, name := range st.Drift {
		fmt.Fprintf(env.Stdout, "changed by hand: %s\n", name)
	}
	return nil
}

// factsCmd prints what the machine is.
type factsCmd struct {
	Root      string `placeholder:"DIR" help:"read the files below DIR, and ask no program"`
	QueueFile bool   `name:"queue-file" help:"print a queue file of this machine instead, to correct"`
}

func (c *factsCmd) Run(ctx context.Context, env *cli.Env) error {
	f, err := facts.Read(ctx, facts.Host(c.Root))
	if err != nil {
		return err
	}
	if c.QueueFile {
		draft, err := setup.Draft(f)
		if err == nil {
			_, err = io.WriteString(env.Stdout, draft)
		}
		return err
	}
	return cli.PrintJSON(env.Stdout, f)
}
