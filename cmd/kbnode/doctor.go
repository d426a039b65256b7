package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
)

// doctorCmd says what is wrong with this machine.
type doctorCmd struct {
	Slot      string `placeholder:"NAME"`
	Preflight bool
	Deep      bool
	Submit    bool
	All       bool
	JSON      bool `name:"json"`
}

// diagnosis is --json of doctor.
type diagnosis struct {
	OK     bool            `json:"ok"` // no failure; warnings may be there
	Node   string          `json:"node"`
	Checks []doctor.Result `json:"checks"`
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
	d := diagnosis{Node: config.Node, Checks: doctor.Run(ctx, doctor.Host(), config, doctor.Options{Slot: c.Slot, Preflight: c.Preflight})}
	if c.Deep {
		d.Checks = append(d.Checks, deep(ctx, config, slots)...)
	}
	if c.Submit {
		more, err := submitted(ctx, env, config, c.Slot)
		if err != nil {
			return err
		}
		d.Checks = append(d.Checks, more...)
	}
	d.OK = doctor.Worst(d.Checks) != doctor.Failure
	if c.JSON {
		err = cli.PrintJSON(env.Stdout, d)
	} else {
		d.print(env, c.All)
	}
	if err == nil && !d.OK {
		failures := 0
		for _, r := range d.Checks {
			if r.State == doctor.Failure {
				failures++
			}
		}
		err = fmt.Errorf("%d of %d checks failed", failures, len(d.Checks))
	}
	return err
}

// print writes a line for each result that is not as it should be, or for all, with
// its remedy below, and how many there are.
func (d *diagnosis) print(env *cli.Env, all bool) {
	count := map[doctor.State]int{}
	for _, r := range d.Checks {
		count[r.State]++
		if !all && (r.State == doctor.OK || r.State == doctor.Skipped) {
			continue
		}
		where := d.Node
		if r.Slot != "" {
			where = r.Slot
		}
		fmt.Fprintf(env.Stdout, "%-8s %-8s %-16s %s\n", r.State, where, r.Code, r.Text)
		if r.Fix != "" {
			fmt.Fprintf(env.Stdout, "%-8s %-8s %-16s mend: %s\n", "", "", "", r.Fix)
		}
	}
	fmt.Fprintf(env.Stdout, "%d checks: %d in order, %d failed, %d to look at, %d not made\n",
		len(d.Checks), count[doctor.OK], count[doctor.Failure], count[doctor.Warning], count[doctor.Skipped])
}
