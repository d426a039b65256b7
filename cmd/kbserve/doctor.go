package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
)

type doctorCmd struct {
	place     `embed:""`
	buildkite `embed:""`
	Age       time.Duration `default:"30m"`
	JSON      bool          `name:"json"`
}

// Kinds of what doctor finds.
const (
	foundWaiting   = "waiting"       // planned, and nobody has taken it
	foundAbandoned = "abandoned"     // begun, and whoever held it is gone
	foundSlow      = "slow"          // begun, held, and not over
	foundForgotten = "forgotten"     // not done, and nothing of it is planned
	foundPast      = "past deadline" // a board that is over and has open runs
	foundStandings = "standings"     // they are not what the runs say
	foundSilence   = "silence"       // events came once, and do not any more
	foundMachines  = "machines"      // a GPU type of an open board that no agent serves
)

// diagnosis is --json.
type diagnosis struct {
	OK    bool      `json:"ok"`
	Found []finding `json:"found"`
}

type finding struct {
	Kind       string `json:"kind"`
	Board      string `json:"board"`
	Submission int64  `json:"submission"` // 0: none
	RunID      string `json:"run_id"`
	Build      int64  `json:"build_number"` // 0: none that is known
	Text       string `json:"text"`
	ToDo       string `json:"to_do"`
}

func (c *doctorCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Age < 0 {
		return cli.Usagef("--age: got %v, want 0 or more", c.Age)
	}
	d := diagnosis{Found: []finding{}}
	err := c.with(ctx, func(s *store.Store) error {
		machines := func(ctx context.Context, s *store.Store) ([]finding, error) { return c.machines(ctx, env, s) }
		for _, look := range []func(context.Context, *store.Store) ([]finding, error){c.stuck, c.pastDeadline, standings, c.silence, machines} {
			found, err := look(ctx, s)
			if err != nil {
				return err
			}
			d.Found = append(d.Found, found...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.OK = len(d.Found) == 0
	if c.JSON {
		err = cli.PrintJSON(env.Stdout, d)
	} else {
		d.print(env)
	}
	if err == nil && !d.OK {
		err = fmt.Errorf("found: %d", len(d.Found))
	}
	return err
}

func (d *diagnosis) print(env *cli.Env) {
	for _, f := range d.Found {
		fmt.Fprintf(env.Stdout, "%s: %s\n  to do: %s\n", f.Kind, f.Text, f.ToDo)
	}
	if d.OK {
		fmt.Fprintln(env.Stdout, "nothing is stuck, and the standings are what the runs say")
	}
}

// stuck says what has not finished for long, by its reason.
func (c *doctorCmd) stuck(ctx context.Context, s *store.Store) ([]finding, error) {
	list, err := s.Stuck(ctx, c.Age)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var found []finding
	for _, x := range list {
		f := finding{Board: x.Board, Submission: x.Submission, RunID: x.RunID, Build: x.BuildNumber}
		what := fmt.Sprintf("submission %d on %s of %s", x.Submission, named(x.GPU), text.Line(x.Board, 100))
		age := now.Sub(x.Created).Round(time.Second)
		switch {
		case x.RunID == "":
			f.Kind, f.Text = foundForgotten, fmt.Sprintf("%s has not finished for %v, and no evaluation of it is planned", what, age)
			f.ToDo = fmt.Sprintf("if no server of Kernelbot's evaluates it: kbserve submission delete %d", x.Submission)
		case x.State == store.StatePlanned:
			f.Kind, f.Text = foundWaiting, fmt.Sprintf("%s has waited for %v", what, age)
			f.ToDo = "is a server running, has the queue agents, is the GPU type paused?"
		case x.Until.Before(now):
			f.Kind, f.Text = foundAbandoned, fmt.Sprintf("%s: %s held it until %s", what, text.Line(x.LeaseOwner, 100), x.Until.Format(time.RFC3339))
			f.ToDo = "a server that runs takes it over and looks for its build"
		default:
			f.Kind, f.Text = foundSlow, fmt.Sprintf("%s: %s for %v, build %d", what, x.State, age, x.BuildNumber)
			f.ToDo = "look at the build; cancel it there if it hangs, and its submission fails"
		}
		found = append(found, f)
	}
	return found, nil
}

// pastDeadline says which boards are over and have open runs.
func (c *doctorCmd) pastDeadline(ctx context.Context, s *store.Store) ([]finding, error) {
	list, err := s.Stuck(ctx, 0)
	if err != nil {
		return nil, err
	}
	var found []finding
	open := map[string]int{}
	for _, x := range list {
		if x.RunID == "" || time.Since(x.Deadline) < c.Age {
			continue
		}
		if open[x.Board]++; open[x.Board] == 1 {
			found = append(found, finding{Kind: foundPast, Board: x.Board, Text: "over since " + x.Deadline.Format(time.RFC3339), ToDo: "its ranking is not final before they end"})
		}
	}
	for i := range found {
		f := &found[i]
		f.Text = fmt.Sprintf("board %s is %s and has open runs: %d", text.Line(f.Board, 100), f.Text, open[f.Board])
	}
	return found, nil
}

// standings says where they are not what the runs say.
func standings(ctx context.Context, s *store.Store) (found []finding, err error) {
	faults, err := s.Check(ctx)
	for _, fault := range faults {
		found = append(found, finding{Kind: foundStandings, Text: fault, ToDo: "kbserve db rebuild"})
	}
	return found, err
}

// silence says when runs finish and no events come, where some came before.
func (c *doctorCmd) silence(ctx context.Context, s *store.Store) ([]finding, error) {
	event, finished, err := s.Events(ctx)
	if err != nil || event.IsZero() || finished.Sub(event) < c.Age {
		return nil, err
	}
	return []finding{{
		Kind: foundSilence, Text: fmt.Sprintf("the last of Buildkite's events came at %s, and a run finished at %s", event.Format(time.RFC3339), finished.Format(time.RFC3339)),
		ToDo: "look at the webhook's last requests in Buildkite's settings; results come all the same, later and for more requests",
	}}, nil
}

// machines says which GPU types of open boards no agent serves. Without a token
// nobody is asked.
func (c *doctorCmd) machines(ctx context.Context, env *cli.Env, s *store.Store) ([]finding, error) {
	if env.Getenv(varToken) == "" {
		fmt.Fprintf(env.Stderr, "kbserve: note: no %s: whether the queues have agents is not looked at\n", varToken)
		return nil, nil
	}
	boards, err := s.Boards(ctx)
	if err != nil {
		return nil, err
	}
	client, err := c.client(env, "", 0, nil)
	if err != nil {
		return nil, err
	}
	agents, err := client.Agents(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing agents: %w", err)
	}
	count := launcher.ByQueue(agents)
	var found []finding
	for _, b := range boards {
		for _, gpu := range b.GPUs {
			row, err := pipelines.Fleet.Lookup(gpu)
			if !b.Deadline.After(time.Now()) || err == nil && count[row.Queue].Agents > 0 {
				continue
			}
			f := finding{Kind: foundMachines, Board: b.Name, Text: fmt.Sprintf("board %s: no agent serves %s", text.Line(b.Name, 100), named(gpu)), ToDo: "connect one, or take the GPU type off the board"}
			var off *pipelines.OffError
			switch {
			case errors.As(err, &off):
				f.Text = fmt.Sprintf("board %s: %s is switched off: %s", text.Line(b.Name, 100), named(gpu), off.Reason)
			case err == nil:
				f.Text += fmt.Sprintf(" (queue %s, paused agents: %d)", row.Queue, count[row.Queue].Paused)
			}
			found = append(found, f)
		}
	}
	return found, nil
}
