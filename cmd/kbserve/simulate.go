package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/reconciler"
	"github.com/gpu-mode/kbgen/server/simulate"
	"github.com/gpu-mode/kbgen/store"
)

type simulateCmd struct {
	place       `embed:""`
	Board       string        `placeholder:"NAME" help:"take times, users, GPU types and durations from this board's history in the database"`
	Users       int           `default:"1000" placeholder:"N" help:"users who submit"`
	GPU         []string      `name:"gpu" sep:"none" required:"" placeholder:"NAME=N" help:"a GPU type and how many there are; may be repeated"`
	Hours       int           `default:"24" placeholder:"N" help:"how long users submit"`
	Rush        float64       `default:"1" placeholder:"FACTOR" help:"submissions per hour at the end over those at the beginning"`
	Submissions float64       `default:"5" placeholder:"N" help:"submissions of one user, on average"`
	Ranked      float64       `default:"0.5" placeholder:"SHARE" help:"share of submissions that are ranked, which take two runs"`
	Evaluation  time.Duration `default:"1m" help:"how long a GPU evaluates, median"`
	Spread      float64       `default:"2" placeholder:"FACTOR" help:"95 % of evaluations take less than FACTOR times the median"`
	Failures    float64       `default:"0.01" placeholder:"SHARE" help:"share of evaluations that a machine fails and that are started again"`
	Large       float64       `name:"large-results" default:"0" placeholder:"SHARE" help:"share of results over 16 KiB, which take two more requests"`
	Seed        uint64        `default:"1" placeholder:"N" help:"the same seed gives the same figures"`
	JSON        bool          `name:"json" help:"print JSON"`
}

func (c *simulateCmd) Run(ctx context.Context, env *cli.Env) error {
	o := simulate.Options{Users: c.Users, Hours: float64(c.Hours), Rush: c.Rush, Submissions: c.Submissions, Ranked: c.Ranked, Evaluation: c.Evaluation, Spread: c.Spread,
		Failures: c.Failures, Large: c.Large, Limit: reconciler.DefaultLimit, Creating: reconciler.MaxCreating}
	for _, one := range c.GPU {
		name, number, _ := strings.Cut(one, "=")
		n, err := strconv.Atoi(number)
		if err != nil {
			return cli.Usagef("--gpu: got %s, want NAME=N", text.Quote(one))
		}
		o.GPUs = append(o.GPUs, simulate.GPUs{Name: text.Line(name, 40), Number: n})
	}
	if c.Board != "" {
		if err := c.with(ctx, func(s *store.Store) error { return replay(ctx, s, c.Board, &o) }); err != nil {
			return err
		}
	}
	if err := o.Validate(); err != nil {
		return &cli.UsageError{Err: err}
	}
	r, err := simulate.Run(ctx, o, rand.New(rand.NewPCG(c.Seed, 0)))
	if err != nil {
		return err
	}
	if c.JSON {
		return cli.PrintJSON(env.Stdout, r)
	}
	return printSimulation(env.Stdout, r)
}

// replay has the simulation repeat what was submitted to a board.
func replay(ctx context.Context, s *store.Store, board string, o *simulate.Options) error {
	all, err := s.Evaluated(ctx, board)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("board %s: nothing was evaluated yet", text.Quote(board))
	}
	users := map[string]bool{}
	for _, e := range all {
		users[e.UserID] = true
		o.Arrivals = append(o.Arrivals, simulate.Arrival{At: e.Time.Sub(all[0].Time), User: e.UserID, GPU: e.GPU, Ranked: e.Ranked, Took: e.Took})
	}
	o.Users, o.Hours = len(users), max(o.Arrivals[len(all)-1].At.Hours(), 1)
	return nil
}

// printSimulation prints a report for people.
func printSimulation(w io.Writer, r *simulate.Report) error {
	share := func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
	seconds := func(s float64) string { return format.Elapsed(time.Duration(s * float64(time.Second))) }
	fmt.Fprintf(w, "%s, %s, %s\n\n", format.Count(r.Users, "user"), format.Count(r.Submissions, "submission"), format.Count(r.Runs, "run"))
	rows := []string{"WAIT OF\tMEDIAN\t95 %\tLONGEST\tGPUS\tUSE\tBUSIEST HOUR"}
	row := func(form string, args ...any) { rows = append(rows, fmt.Sprintf(form, args...)) }
	for _, g := range r.GPUs {
		row("%s\t%s\t%s\t%s\t%d\t%s\t%s", g.Name, seconds(g.Wait.Median), seconds(g.Wait.Most), seconds(g.Wait.Longest), g.Number, share(g.Use), share(g.Peak))
	}
	row("all results\t%s\t%s\t%s", seconds(r.Result.Median), seconds(r.Result.Most), seconds(r.Result.Longest))
	if err := cli.WriteTable(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	rows = []string{"BUSIEST HOUR\t\tLIMIT"}
	b := r.Busiest
	row("runs submitted\t%s", format.Number(b.Planned))
	row("builds, webhook events\t%s", format.Number(b.Builds))
	row("REST calls, %.2f a run\t%s\t%s of %s", r.CallsEach, format.Number(b.Calls), format.Number(r.CallsSteady), format.Number(r.CallsLimit))
	row("database transactions\t%s", format.Number(b.Transactions))
	row("runs in the queue\t%s", format.Number(r.MostWaiting))
	row("runs at once in kbserve\t%s\t%s", format.Number(r.MostWorking), format.Number(r.Limit))
	if r.Failed > 0 {
		row("runs without a result\t%s", format.Number(r.Failed))
	}
	if err := cli.WriteTable(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if len(r.Changes) == 0 {
		fmt.Fprintln(w, "nothing would have to change")
		return nil
	}
	fmt.Fprintln(w, "what would have to change:")
	for _, change := range r.Changes {
		fmt.Fprintf(w, "- %s:\n  %s\n", change.Found, change.Do)
	}
	return nil
}
