package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/competition"
	"github.com/gpu-mode/kbgen/server/listing"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/queue"
	"github.com/gpu-mode/kbgen/store/ranking"
)

type boardCmd struct {
	Create  createCmd  `cmd:""`
	Set     setCmd     `cmd:""`
	Sync    syncCmd    `cmd:""`
	List    listCmd    `cmd:""`
	Show    showCmd    `cmd:""`
	History historyCmd `cmd:""`
	Rejudge rejudgeCmd `cmd:""`
	Delete  deleteCmd  `cmd:""`
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
	deadline, err := parseDeadline(c.Deadline)
	if err != nil {
		return err
	}
	if !deadline.After(time.Now()) {
		return cli.Usagef("--deadline: got %s, which is over, want a later time", text.Quote(c.Deadline))
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
	if err := serves(b.GPUs); err != nil {
		return err
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

// parseLimits reads category=N and category@GPU=N; the list is not nil.
func parseLimits(flag string, words []string) ([]store.Limit, error) {
	limits := []store.Limit{}
	for _, word := range words {
		l, err := store.ParseLimit(word)
		if err != nil {
			return nil, cli.Usagef("%s: %v", flag, err)
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// serves refuses GPU types that evaluate no submissions.
func serves(gpus []string) error {
	for _, gpu := range gpus {
		if _, err := pipelines.Fleet.Lookup(gpu); err != nil {
			return cli.Usagef("--gpu: %v", err)
		}
	}
	return nil
}

// parseDeadline reads a deadline; "now" is now.
func parseDeadline(s string) (time.Time, error) {
	if s == "now" {
		return time.Now(), nil
	}
	deadline, ok := competition.ParseDeadline(s)
	if !ok {
		return deadline, cli.Usagef("--deadline: got %s, want 2026-12-31, 2026-12-31T18:00 or 2026-12-31T18:00:00+01:00", text.Quote(s))
	}
	return deadline, nil
}

// commandLine is the author of changes made by commands.
func commandLine(reason string) store.Author {
	return store.Author{Name: "command line", Reason: reason}
}

type setCmd struct {
	place       `embed:""`
	Name        string   `arg:""`
	Deadline    string   `placeholder:"TIME" help:"2026-12-31 or 2026-12-31T18:00, in UTC unless it has a zone; now ends the board"`
	JudgeLate   bool     `help:"the new deadline also decides which existing submissions are late"`
	Visibility  string   `placeholder:"WHO" help:"public, or closed: only users with an invite"`
	GPU         []string `name:"gpu" sep:"none" placeholder:"NAME" help:"all GPU types from now on; may be repeated"`
	Limit       []string `sep:"none" placeholder:"LIMIT" help:"all limits from now on, as of kbserve limits set; may be repeated"`
	Harness     string   `placeholder:"NAME" help:"any, isolated or proved: the harness with which a submission ranks"`
	Sandbox     string   `placeholder:"LEVEL" help:"any, none, partial or full: the weakest sandbox with which a submission ranks"`
	ClearTiming string   `placeholder:"WORD" help:"yes: submissions with ambiguous timing do not rank; or no"`
	Ties        string   `placeholder:"WORD" help:"yes: submissions whose intervals overlap share a rank; or no"`
	ShowCode    string   `placeholder:"WHEN" help:"when other users may see code: never, or after the deadline"`
	Reuse       string   `placeholder:"WORD" help:"yes: code that was judged before gets the stored result; or no"`
	Reason      string   `placeholder:"TEXT" help:"for the board's history, which every user who sees the board can read"`
}

func (c *setCmd) Run(ctx context.Context, env *cli.Env) error {
	var deadline time.Time
	var limits []store.Limit
	var err error
	if c.Deadline != "" {
		if deadline, err = parseDeadline(c.Deadline); err != nil {
			return err
		}
		if c.Deadline != "now" && !c.JudgeLate && deadline.Before(time.Now()) {
			return cli.WithHint(cli.Usagef("--deadline: got %s, which is over, want a later time or now", text.Quote(c.Deadline)), "with --judge-late, submissions since then are late")
		}
	}
	if len(c.Limit) > 0 {
		if limits, err = parseLimits("--limit", c.Limit); err != nil {
			return err
		}
	}
	if err := serves(c.GPU); err != nil {
		return err
	}
	for flag, word := range map[string]string{"--clear-timing": c.ClearTiming, "--ties": c.Ties, "--reuse": c.Reuse} {
		if word != "" && word != "yes" && word != "no" {
			return cli.Usagef("%s: got %s, want yes or no", flag, text.Quote(word))
		}
	}
	edit := func(b *store.Board) error {
		if !deadline.IsZero() {
			b.Deadline = deadline
		}
		if len(c.GPU) > 0 {
			b.GPUs = c.GPU
		}
		if limits != nil {
			b.Limits = limits
		}
		b.Visibility, b.ShowCode = cmp.Or(c.Visibility, b.Visibility), cmp.Or(c.ShowCode, b.ShowCode)
		for into, word := range map[*string]string{&b.Policy.Harness: c.Harness, &b.Policy.Sandbox: c.Sandbox} {
			if word == "any" {
				*into = ""
			} else if word != "" {
				*into = word
			}
		}
		for into, word := range map[*bool]string{&b.Policy.ClearTiming: c.ClearTiming, &b.Policy.Ties: c.Ties, &b.Reuse: c.Reuse} {
			if word != "" {
				*into = word == "yes"
			}
		}
		return nil
	}
	return c.with(ctx, func(s *store.Store) error {
		change, err := s.SetBoard(ctx, c.Name, edit, store.SetOptions{By: commandLine(c.Reason), JudgeLate: c.JudgeLate})
		if err != nil {
			return err
		}
		if len(change.Parts) == 0 {
			fmt.Fprintf(env.Stdout, "unchanged %s\n", c.Name)
		}
		for _, e := range change.Parts {
			fmt.Fprintf(env.Stdout, "changed %s: %s\n", c.Name, text.Line(e.String(), 500))
		}
		return nil
	})
}

type historyCmd struct {
	place `embed:""`
	Name  string `arg:""`
}

func (c *historyCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		all, err := s.BoardChanges(ctx, c.Name)
		if err != nil {
			return err
		}
		return cli.PrintList(env.Stdout, false, all, "TIME\tBY\tCHANGE\tREASON", func(b store.BoardChange) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s", b.Time.Format("2006-01-02 15:04"), text.Line(b.Author.Name, 60), text.Line(b.Edit.String(), 200), cmp.Or(text.Line(b.Reason, 200), "-"))
		})
	})
}

type rejudgeCmd struct {
	place  `embed:""`
	Name   string `arg:""`
	GPU    string `name:"gpu" placeholder:"NAME" help:"only on this GPU type"`
	User   string `placeholder:"ID" help:"only of this user"`
	Since  string `placeholder:"TIME" help:"only those that came at this time or later"`
	Until  string `placeholder:"TIME" help:"only those that came earlier"`
	Status string `placeholder:"STATUS" help:"those that succeeded, failed or timed_out, whether they rank or not"`
	All    bool   `help:"also submissions that do not rank"`
	DryRun bool   `help:"print how many there are"`
	Report bool   `help:"print how far the last re-evaluation is, and the ranks that it changed"`
	Reason string `placeholder:"TEXT" help:"why, for the board's history"`
	JSON   bool   `name:"json" help:"print the report as JSON"`
}

func (c *rejudgeCmd) Run(ctx context.Context, env *cli.Env) error {
	which := store.Rejudging{GPU: c.GPU, UserID: c.User, Status: c.Status, All: c.All, DryRun: c.DryRun, Priority: queue.PriorityBulk, By: commandLine(c.Reason)}
	for _, x := range []struct {
		flag, value string
		into        *time.Time
	}{{"--since", c.Since, &which.Since}, {"--until", c.Until, &which.Until}} {
		if x.value == "" {
			continue
		}
		at, ok := competition.ParseDeadline(x.value)
		if !ok {
			return cli.Usagef("%s: got %s, want 2026-12-31, 2026-12-31T18:00 or 2026-12-31T18:00:00+01:00", x.flag, text.Quote(x.value))
		}
		*x.into = at
	}
	return c.with(ctx, func(s *store.Store) error {
		if c.Report {
			return c.report(ctx, env, s)
		}
		planned, err := s.Rejudge(ctx, c.Name, which)
		if err != nil {
			return err
		}
		took := "unknown GPU time"
		if planned.Took > 0 {
			took = "about " + format.Duration(planned.Took) + " of GPU time"
		}
		fmt.Fprintf(env.Stdout, "submissions: %d, runs: %d, %s\n", planned.Submissions, planned.Runs, took)
		if c.DryRun {
			fmt.Fprintln(env.Stderr, "kbserve: note: nothing was planned")
		}
		return nil
	})
}

func (c *rejudgeCmd) report(ctx context.Context, env *cli.Env, s *store.Store) error {
	r, err := s.RejudgeReport(ctx, c.Name)
	if err != nil {
		return err
	}
	if c.JSON {
		return cli.PrintJSON(env.Stdout, r)
	}
	fmt.Fprintf(env.Stdout, "begun %s by %s, runs: %d, not finished: %d\n", r.Started.Format("2006-01-02 15:04"), text.Line(r.Author, 60), r.Runs, r.OpenRuns)
	rank := func(n int) string {
		if n == 0 {
			return "none"
		}
		return strconv.Itoa(n)
	}
	return cli.PrintList(env.Stdout, false, r.Movements, "GPU\tUSER\tID\tRANK BEFORE\tRANK", func(m store.Movement) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", text.Line(m.GPU, 100), text.Line(m.User, 60), text.Line(m.UserID, 20), rank(m.OldRank), rank(m.Rank))
	})
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
		changes, err := s.SaveBoards(ctx, boards, store.SaveOptions{Force: c.Force, DryRun: c.DryRun, By: commandLine("board sync")})
		if err != nil {
			return err
		}
		for _, change := range changes {
			fmt.Fprintf(env.Stdout, "%s %s", change.What, change.Board)
			for i, e := range change.Parts {
				fmt.Fprint(env.Stdout, map[bool]string{true: ": ", false: ", "}[i == 0], e.Field)
			}
			fmt.Fprintln(env.Stdout)
		}
		noteUnserved(env, boards)
		if c.DryRun {
			fmt.Fprintln(env.Stderr, "kbserve: note: nothing was changed")
		}
		return nil
	})
}

// noteUnserved names the GPU types of Kernelbot's files that evaluate nothing here.
func noteUnserved(env *cli.Env, boards []store.Board) {
	noted := map[string]bool{}
	for _, b := range boards {
		for _, gpu := range b.GPUs {
			if _, err := pipelines.Fleet.Lookup(gpu); err != nil && !noted[gpu] {
				noted[gpu] = true
				fmt.Fprintf(env.Stderr, "kbserve: note: submissions for it will be refused: %v\n", err)
			}
		}
	}
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
	return c.with(ctx, func(s *store.Store) error {
		_, err := s.SetBoard(ctx, c.Board, func(b *store.Board) error { b.Limits = limits; return nil }, store.SetOptions{By: commandLine("")})
		return err
	})
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
			var rows []string
			for _, e := range r.Entries {
				rank := strconv.Itoa(e.Rank)
				if e.Tied {
					rank += "="
				}
				rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d", rank, text.Line(e.User, 60), text.Line(e.UserID, 20), format.Score(e.Score), e.Time.Format("2006-01-02 15:04"), e.SubmissionID))
			}
			if err := cli.WriteTable(env.Stdout, rows); err != nil {
				return err
			}
		}
		return nil
	})
}
