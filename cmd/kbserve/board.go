package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/competition"
	"github.com/gpu-mode/kbgen/server/listing"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

type boardCmd struct {
	Create createCmd `cmd:""`
	Sync   syncCmd   `cmd:""`
	List   listCmd   `cmd:""`
	Show   showCmd   `cmd:""`
	Close  closeCmd  `cmd:""`
	Delete deleteCmd `cmd:""`
}

type createCmd struct {
	place       `embed:""`
	Name        string   `arg:""`
	Task        string   `arg:""`
	Deadline    string   `required:"" placeholder:"TIME" help:"2026-12-31 or 2026-12-31T18:00, in UTC unless it has a zone; a date alone means its first minute"`
	GPU         []string `name:"gpu" sep:"none" placeholder:"NAME" help:"a GPU type; may be repeated; default the task's"`
	Closed      bool     `help:"only users with an invite may submit"`
	Limit       []string `sep:"none" placeholder:"LIMIT" help:"a user's submissions per hour; may be repeated: leaderboard=10, test=60 (every other mode), test@B200_BK=5"`
	Harness     string   `placeholder:"NAME" help:"isolated: a submission ranks only if this harness judged it; proved: and only on a GPU that passed kbrun prove"`
	Sandbox     string   `placeholder:"LEVEL" help:"none, partial or full: the weakest sandbox with which a submission ranks"`
	ClearTiming bool     `help:"submissions with ambiguous timing do not rank"`
	Ties        bool     `help:"submissions whose intervals overlap share a rank"`
	ShowCode    string   `default:"after" placeholder:"WHEN" help:"when other users may see code: never, or after the deadline"`
	Reuse       bool     `help:"answer a text that was judged before with its result"`
}

func (c *createCmd) Run(ctx context.Context, env *cli.Env) error {
	deadline, ok := competition.ParseDeadline(c.Deadline)
	if !ok {
		return cli.Usagef("--deadline: got %s, want 2026-12-31, 2026-12-31T18:00 or 2026-12-31T18:00:00+01:00", text.Quote(c.Deadline))
	}
	t, err := task.LoadDir(c.Task)
	if err != nil {
		return err
	}
	b := store.Board{Name: c.Name, Deadline: deadline, Description: t.Description, GPUs: c.GPU, Task: t, ShowCode: c.ShowCode, Reuse: c.Reuse,
		Policy: &ranking.Policy{Harness: c.Harness, Sandbox: c.Sandbox, ClearTiming: c.ClearTiming, Ties: c.Ties}}
	if len(b.GPUs) == 0 {
		b.GPUs = t.GPUs
	}
	if c.Closed {
		b.Visibility = store.Closed
	}
	if b.Limits, err = parseLimits("--limit", c.Limit); err != nil {
		return err
	}
	return c.with(ctx, func(s *store.Store) error {
		_, err := s.SaveBoards(ctx, []store.Board{b}, store.SaveOptions{New: true})
		if err == nil {
			fmt.Fprintf(env.Stdout, "created %s\n", c.Name)
		}
		return err
	})
}

// parseLimits reads category=N and category@GPU=N.
func parseLimits(flag string, list []string) (limits []store.Limit, err error) {
	for _, s := range list {
		what, number, _ := strings.Cut(s, "=")
		category, gpu, _ := strings.Cut(what, "@")
		n, err := strconv.Atoi(number)
		if err != nil || category != schema.ModeTest && category != schema.ModeLeaderboard {
			return nil, cli.Usagef("%s: got %s, want test=N, leaderboard=N, test@GPU=N or leaderboard@GPU=N", flag, text.Quote(s))
		}
		limits = append(limits, store.Limit{GPU: gpu, Category: category, PerHour: n})
	}
	return limits, nil
}

type listCmd struct {
	place `embed:""`
	JSON  bool `name:"json" help:"print JSON"`
}

// listed is a board in --json.
type listed struct {
	Name        string    `json:"name"`
	Deadline    time.Time `json:"deadline"`
	GPUs        []string  `json:"gpu_types"`
	Visibility  string    `json:"visibility"`
	Submissions int       `json:"submissions"`
	Standings   int       `json:"standings"`
	ranking.Policy
	ShowCode string `json:"show_code"` // never or after (the deadline)
	Reuse    bool   `json:"reuse"`
}

func (c *listCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		boards, err := s.Boards(ctx)
		if err != nil {
			return err
		}
		var list []listed
		for _, b := range boards {
			list = append(list, listed{b.Name, b.Deadline, append([]string{}, b.GPUs...), b.Visibility, b.Submissions, b.Ranked, *b.Policy, b.ShowCode, b.Reuse})
		}
		return cli.PrintList(env.Stdout, c.JSON, list, "NAME\tDEADLINE\tSTATE\tSUBMISSIONS\tSTANDINGS\tGPUS\tRANKS", func(b listed) string {
			state := b.Visibility
			if time.Now().After(b.Deadline) {
				state = "ended"
			}
			return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%s\t%s", text.Line(b.Name, 100), b.Deadline.Format("2006-01-02 15:04"), state, b.Submissions, b.Standings,
				text.Line(strings.Join(b.GPUs, ","), 200), b.requirements())
		})
	})
}

// requirements are what a board requires beyond Kernelbot's rule, "all" for nothing.
func (p *listed) requirements() string {
	var words []string
	if p.Harness != "" {
		words = append(words, "harness "+p.Harness)
	}
	if p.Sandbox != "" {
		words = append(words, "sandbox "+p.Sandbox)
	}
	if p.ClearTiming {
		words = append(words, "clear timing")
	}
	if p.Ties {
		words = append(words, "ties")
	}
	return cmp.Or(strings.Join(words, ", "), "all")
}

type closeCmd struct {
	place `embed:""`
	Name  string `arg:""`
}

func (c *closeCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		return s.CloseBoard(ctx, c.Name, time.Now())
	})
}

type deleteCmd struct {
	place `embed:""`
	Name  string `arg:""`
	Force bool   `help:"delete the board with all its submissions"`
}

func (c *deleteCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		n, err := s.DeleteBoard(ctx, c.Name, c.Force)
		if err != nil {
			if n > 0 && !c.Force {
				err = cli.WithHint(err, "kbserve board delete %s --force", c.Name)
			}
			return err
		}
		fmt.Fprintf(env.Stdout, "deleted %s, submissions: %d\n", c.Name, n)
		return nil
	})
}

type syncCmd struct {
	place  `embed:""`
	Files  []string `arg:"" name:"file"`
	Force  bool     `help:"also change what makes earlier results incomparable"`
	DryRun bool     `help:"print what would change"`
}

func (c *syncCmd) Run(ctx context.Context, env *cli.Env) error {
	var boards []store.Board
	var faults []error
	for _, name := range c.Files {
		more, err := competition.Read(name)
		boards = append(boards, more...)
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	return c.with(ctx, func(s *store.Store) error {
		changes, err := s.SaveBoards(ctx, boards, store.SaveOptions{Force: c.Force, DryRun: c.DryRun})
		if err != nil {
			return err
		}
		for _, change := range changes {
			fmt.Fprintf(env.Stdout, "%s %s", change.What, change.Board)
			if len(change.Parts) > 0 {
				fmt.Fprintf(env.Stdout, ": %s", strings.Join(change.Parts, ", "))
			}
			fmt.Fprintln(env.Stdout)
		}
		if c.DryRun {
			fmt.Fprintln(env.Stderr, "kbserve: note: nothing was changed")
		}
		return nil
	})
}

type limitsCmd struct {
	Show limitsShowCmd `cmd:""`
	Set  limitsSetCmd  `cmd:""`
}

type limitsShowCmd struct {
	place `embed:""`
	Board string `arg:""`
	JSON  bool   `name:"json" help:"print JSON"`
}

func (c *limitsShowCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		limits, err := s.Limits(ctx, c.Board)
		if err != nil {
			return err
		}
		return cli.PrintList(env.Stdout, c.JSON, limits, "SUBMISSIONS\tGPU\tAN HOUR", func(l store.Limit) string {
			return fmt.Sprintf("%s\t%s\t%d", l.Category, cmp.Or(text.Line(l.GPU, 100), "all"), l.PerHour)
		})
	})
}

type limitsSetCmd struct {
	place  `embed:""`
	Board  string   `arg:""`
	Limits []string `arg:"" optional:"" name:"limit"`
}

func (c *limitsSetCmd) Run(ctx context.Context, env *cli.Env) error {
	limits, err := parseLimits("limit", c.Limits)
	if err != nil {
		return err
	}
	return c.with(ctx, func(s *store.Store) error { return s.SetLimits(ctx, c.Board, limits) })
}

type showCmd struct {
	place `embed:""`
	Name  string `arg:""`
	GPU   string `name:"gpu" placeholder:"NAME" help:"only this GPU type"`
	Limit int    `default:"20" placeholder:"N" help:"so many entries of each GPU type; 0 for all"`
	JSON  bool   `name:"json" help:"print a list, one object for each GPU type"`
}

func (c *showCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Limit < 0 {
		return cli.Usagef("--limit: got %d, want 0 for all, or more", c.Limit)
	}
	return c.with(ctx, func(s *store.Store) error {
		all, err := listing.Rankings(ctx, s, c.Name, c.GPU, c.Limit)
		if err != nil {
			return err
		}
		if c.JSON {
			return cli.PrintJSON(env.Stdout, all)
		}
		for i, r := range all {
			if i > 0 {
				fmt.Fprintln(env.Stdout)
			}
			fmt.Fprintf(env.Stdout, "%s on %s: %d ranked\n", text.Line(c.Name, 100), text.Line(r.GPU, 100), r.Total)
			w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
			for _, e := range r.Entries {
				rank := strconv.Itoa(e.Rank)
				if e.Tied {
					rank += "="
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\n", rank, text.Line(e.User, 60), text.Line(e.UserID, 20), format.Score(e.Score), e.Time.Format("2006-01-02 15:04"), e.SubmissionID)
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return nil
	})
}
