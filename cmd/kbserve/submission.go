package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/listing"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

type submissionCmd struct {
	List   submissionListCmd   `cmd:""`
	Show   submissionShowCmd   `cmd:""`
	Delete submissionDeleteCmd `cmd:""`
	Verify submissionVerifyCmd `cmd:""`
	Accept submissionAcceptCmd `cmd:""`
	Reject submissionRejectCmd `cmd:""`
	Hacked submissionHackedCmd `cmd:""`
	Unhack submissionUnhackCmd `cmd:""`
}

type submissionListCmd struct {
	place  `embed:""`
	User   string `placeholder:"ID" help:"only submissions of this user"`
	Board  string `help:"only this board"`
	GPU    string `name:"gpu" help:"only this GPU type"`
	Status string `placeholder:"STATUS" help:"pending, running, succeeded, failed, timed_out or hacked"`
	Before int64  `placeholder:"ID" help:"only submissions older than this one"`
	Limit  int    `default:"50" placeholder:"N" help:"at most so many"`
	JSON   bool   `name:"json" help:"print JSON"`
}

func (c *submissionListCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		list, err := listing.Submissions(ctx, s, store.Query{UserID: c.User, Board: c.Board, GPU: c.GPU, Status: c.Status, Before: c.Before, Limit: c.Limit})
		if err != nil {
			return err
		}
		return cli.PrintList(env.Stdout, c.JSON, list, "ID\tTIME\tUSER\tBOARD\tGPU\tMODE\tOUTCOME\tRANKS", func(l store.Listed) string {
			return fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s", l.ID, l.Time.Format("2006-01-02 15:04"), text.Line(l.UserID, 40), text.Line(l.Board, 100), named(l.GPU), named(l.Mode), named(l.Progress()), rankWords(l.Verdicts))
		})
	})
}

// rankWords says where a submission ranks, or why not.
func rankWords(all []ranking.Decision) string {
	words := "-"
	for i, v := range all {
		word := v.GPU + ": " + v.Reason
		if v.Ranks && v.Score != nil {
			word = v.GPU + ": " + format.Score(*v.Score)
		}
		if i == 0 {
			words = word
		} else {
			words += ", " + word
		}
	}
	return text.Line(words, 200)
}

type submissionShowCmd struct {
	place `embed:""`
	ID    int64 `arg:""`
	Code  bool  `help:"print the text, and nothing else without --json"`
	JSON  bool  `name:"json" help:"print JSON"`
}

func (c *submissionShowCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		found, err := listing.Show(ctx, s, c.ID)
		if err != nil {
			return err
		}
		if !c.Code {
			found.Code = nil
		}
		if c.JSON {
			return cli.PrintJSON(env.Stdout, found)
		}
		printSubmission(env, found)
		return nil
	})
}

func printSubmission(env *cli.Env, x *listing.Details) {
	if x.Code != nil {
		fmt.Fprint(env.Stdout, *x.Code)
		return
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush() // writing to stdout
	for _, line := range [][2]string{
		{"submission", fmt.Sprint(x.ID)}, {"board", x.Board}, {"file", x.FileName}, {"user", x.UserID + " " + x.User}, {"time", x.Time.Format(time.RFC3339)},
		{"mode", named(x.Mode)}, {"status", named(x.Status)}, {"error", x.Error}, {"outcome", outcomeWords(x.Outcome)}, {"to do", nextWords(x.Outcome)}, {"ranks", rankWords(x.Verdicts)},
	} {
		if line[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", line[0], text.Line(line[1], 300))
		}
	}
	public := map[bool]string{false: "public", true: "secret"}
	for _, r := range x.Runs {
		passed := "failed"
		if r.Passed {
			passed = "passed"
		}
		if r.Score != nil {
			passed += ", " + format.Score(*r.Score)
		}
		fmt.Fprintf(w, "run\t%s %s %s: %s, %.1f s\n", text.Line(r.Runner, 100), public[r.Secret], text.Line(r.Mode, 40), passed, r.End.Sub(r.Start).Seconds())
	}
	for _, r := range x.None {
		fmt.Fprintf(w, "no result\t%s %s %s: %s, build %d\n", text.Line(r.GPU, 100), public[r.Secret], r.Mode, named(r.Outcome), r.BuildNumber)
	}
	for _, r := range x.Open {
		if r.State == store.StateHeld {
			fmt.Fprintf(w, "waits\t%s %s %s: for the organizers' check\n", text.Line(r.GPU, 100), public[r.Secret], r.Mode)
			continue
		}
		fmt.Fprintf(w, "open\t%s %s %s: %s, build %d\n", text.Line(r.GPU, 100), public[r.Secret], r.Mode, r.State, r.BuildNumber)
	}
}

// outcomeWords are an outcome on one line, "" for none.
func outcomeWords(o *store.Outcome) string {
	if o == nil {
		return ""
	}
	words := o.Name + ": " + o.Text
	if !o.Judged() {
		words += " (a fault of the " + o.Fault + ")"
	}
	return words
}

func nextWords(o *store.Outcome) string {
	if o == nil {
		return ""
	}
	return o.Next
}

type submissionDeleteCmd struct {
	place `embed:""`
	IDs   []int64 `arg:"" optional:"" name:"id"`
	User  string  `placeholder:"ID" help:"all submissions of this user, with --board"`
	Board string  `help:"on this board, with --user"`
}

func (c *submissionDeleteCmd) Run(ctx context.Context, env *cli.Env) error {
	if (c.User == "") != (c.Board == "") || (c.User == "") == (len(c.IDs) == 0) {
		return cli.Usagef("want ids of submissions, or --user ID with --board NAME")
	}
	return c.with(ctx, func(s *store.Store) error {
		if c.User != "" {
			for before := int64(0); ; {
				list, err := s.Submissions(ctx, store.Query{UserID: c.User, Board: c.Board, Before: before, Limit: 1000})
				if err != nil {
					return err
				}
				for _, l := range list {
					c.IDs, before = append(c.IDs, l.ID), l.ID
				}
				if len(list) == 0 {
					break
				}
			}
		}
		for i, id := range c.IDs {
			if err := s.Delete(ctx, id); err != nil && i > 0 {
				return fmt.Errorf("%w; deleted before it: %d", err, i)
			} else if err != nil {
				return err
			}
		}
		fmt.Fprintf(env.Stdout, "deleted submissions: %d\n", len(c.IDs))
		return nil
	})
}

type submissionVerifyCmd struct {
	place `embed:""`
	ID    int64  `arg:""`
	GPU   string `name:"gpu" placeholder:"NAME" help:"on this GPU type; default the submission's"`
}

func (c *submissionVerifyCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.GPU != "" {
		if err := serves([]string{c.GPU}); err != nil {
			return err
		}
	}
	return c.change(ctx, env, func(s *store.Store) error { return s.Plan(ctx, c.ID, c.GPU, 0) }, "submission %d will be evaluated once more", c.ID)
}

// submissionAcceptCmd lets submissions run that wait for the organizers' check.
type submissionAcceptCmd struct {
	place `embed:""`
	IDs   []int64 `arg:"" optional:"" name:"id"`
	All   bool    `help:"all submissions that wait for the check"`
}

func (c *submissionAcceptCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.All != (len(c.IDs) == 0) {
		return cli.Usagef("want ids of submissions, or --all")
	}
	return c.with(ctx, func(s *store.Store) error {
		if c.All {
			waits, err := s.HookWaits(ctx)
			if err != nil {
				return err
			}
			for _, w := range waits {
				if !w.Done {
					c.IDs = append(c.IDs, w.Submission)
				}
			}
		}
		accepted := 0
		for _, id := range c.IDs {
			err := s.Decide(ctx, id, true, "")
			if _, decided := errors.AsType[*store.Refusal](err); decided && c.All {
				continue // meanwhile, by the hook
			}
			if err != nil {
				return fmt.Errorf("%w; accepted before it: %d", err, accepted)
			}
			accepted++
		}
		fmt.Fprintf(env.Stdout, "accepted submissions: %d\n", accepted)
		return nil
	})
}

type submissionRejectCmd struct {
	place `embed:""`
	ID    int64  `arg:""`
	Why   string `required:"" placeholder:"TEXT" help:"what its owner is told"`
}

func (c *submissionRejectCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.change(ctx, env, func(s *store.Store) error { return s.Decide(ctx, c.ID, false, c.Why) }, "submission %d is rejected", c.ID)
}

type submissionUnhackCmd struct {
	place `embed:""`
	ID    int64 `arg:""`
}

func (c *submissionUnhackCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.change(ctx, env, func(s *store.Store) error { return s.UnmarkHacked(ctx, c.ID) }, "submission %d is not marked as hacked any more", c.ID)
}

type submissionHackedCmd struct {
	place `embed:""`
	ID    int64  `arg:""`
	Why   string `required:"" placeholder:"TEXT" help:"what its owner is told"`
}

func (c *submissionHackedCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.change(ctx, env, func(s *store.Store) error { return s.MarkHacked(ctx, c.ID, c.Why) }, "submission %d is marked as hacked", c.ID)
}

// acceptingCmd says whether the servers take submissions, or changes that.
type acceptingCmd struct {
	place `embed:""`
	Word  string `arg:"" optional:""`
}

func (c *acceptingCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Word != "" && c.Word != "yes" && c.Word != "no" {
		return cli.Usagef("got %s, want yes or no", text.Quote(c.Word))
	}
	return c.with(ctx, func(s *store.Store) error {
		if c.Word != "" {
			if err := s.SetAccepting(ctx, c.Word == "yes"); err != nil {
				return err
			}
		}
		accepting, err := s.Accepting(ctx)
		if err == nil {
			fmt.Fprintln(env.Stdout, map[bool]string{true: "submissions are accepted", false: "no submissions are accepted"}[accepting])
		}
		return err
	})
}

type statsCmd struct {
	place `embed:""`
	JSON  bool `name:"json" help:"print JSON"`
}

func (c *statsCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		all, err := s.Stats(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return cli.PrintJSON(env.Stdout, all)
		}
		total := store.BoardStats{Board: "all", Users: all.Users, Submissions: all.Submissions, Hour: all.Hour, Day: all.Day, Open: all.Runs}
		return cli.PrintList(env.Stdout, false, append(all.Boards, total), "BOARD\tUSERS\tSUBMISSIONS\tHOUR\tDAY\tOPEN RUNS\tSTATUSES\tMODES", func(b store.BoardStats) string {
			return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s", text.Line(b.Board, 100), b.Users, b.Submissions, b.Hour, b.Day, b.Open, numbers(b.Statuses), numbers(b.Modes))
		})
	})
}

// numbers are counts by their names, "failed 3, succeeded 8".
func numbers(counts map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%s %d", named(name), counts[name]))
	}
	return strings.Join(words, ", ")
}

func named(name string) string { return cmp.Or(text.Line(name, 40), "none") }

// aboutCmd prints or replaces the text about the competition.
type aboutCmd struct {
	place `embed:""`
	File  string `arg:"" optional:""`
}

func (c *aboutCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		if c.File != "" {
			data, err := cli.ReadInput(env.Stdin, c.File, store.MaxAbout)
			if err != nil {
				return err
			}
			return s.SetAbout(ctx, string(data))
		}
		about, err := s.About(ctx)
		if err == nil {
			fmt.Fprint(env.Stdout, text.Lines(about))
		}
		return err
	})
}
