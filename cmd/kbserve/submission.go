package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

type submissionCmd struct {
	List   submissionListCmd   `cmd:""`
	Show   submissionShowCmd   `cmd:""`
	Delete submissionDeleteCmd `cmd:""`
	Hacked submissionHackedCmd `cmd:""`
}

type submissionListCmd struct {
	place  `embed:""`
	User   string
	Board  string
	GPU    string `name:"gpu"`
	Status string
	Before int64
	Limit  int  `default:"50"`
	JSON   bool `name:"json"`
}

// A Submission is one in --json.
type Submission struct {
	ID       int64           `json:"id"`
	Board    string          `json:"board"`
	FileName string          `json:"file_name"`
	GPU      string          `json:"gpu_type"` // "" when Kernelbot accepted it, and mode, too
	Mode     string          `json:"mode"`
	UserID   string          `json:"user_id"`
	UserName string          `json:"user_name"`
	Time     time.Time       `json:"submission_time"`
	Done     bool            `json:"done"`
	Hacked   bool            `json:"hacked"`
	Status   string          `json:"status"`
	Error    string          `json:"error"`
	Verdicts []listedVerdict `json:"verdicts"`
}

type listedVerdict struct {
	GPU    string   `json:"gpu_type"`
	Ranks  bool     `json:"ranks"`
	Reason string   `json:"reason"` // "" when it ranks
	Score  *float64 `json:"score"`  // seconds
}

func (c *submissionListCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		found, err := s.Submissions(ctx, store.Query{UserID: c.User, Board: c.Board, GPU: c.GPU, Status: c.Status, Before: c.Before, Limit: c.Limit})
		if err != nil {
			return err
		}
		list := []Submission{}
		for _, l := range found {
			list = append(list, Submission{l.ID, l.Board, l.FileName, l.GPU, l.Mode, l.UserID, l.User, l.Time, l.Done, l.Hacked, l.Job.Status, l.Job.Error, verdicts(l.Verdicts)})
		}
		if c.JSON {
			return cli.PrintJSON(env.Stdout, list)
		}
		w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tTIME\tUSER\tBOARD\tGPU\tMODE\tSTATUS\tRANKS")
		for _, l := range list {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, l.Time.Format("2006-01-02 15:04"), text.Line(l.UserID, 40), text.Line(l.Board, 100), named(l.GPU), named(l.Mode), named(l.Status), rankWords(l.Verdicts))
		}
		return w.Flush()
	})
}

func verdicts(all []ranking.Decision) []listedVerdict {
	list := []listedVerdict{}
	for _, v := range all {
		list = append(list, listedVerdict{v.GPU, v.Ranks, v.Reason, v.Score})
	}
	return list
}

// rankWords says where a submission ranks, or why not.
func rankWords(all []listedVerdict) string {
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
	Code  bool
	JSON  bool `name:"json"`
}

// shownSubmission is one submission in --json.
type shownSubmission struct {
	Submission
	Runs []shownRun `json:"runs"`
	Open []openRun  `json:"open_runs"`
	Code *string    `json:"code,omitempty"` // with --code
}

type shownRun struct {
	GPU    string    `json:"gpu_type"`
	Mode   string    `json:"mode"`
	Secret bool      `json:"secret"`
	Passed bool      `json:"passed"`
	Score  *float64  `json:"score"` // seconds
	Start  time.Time `json:"start_time"`
	End    time.Time `json:"end_time"`
}

type openRun struct {
	RunID       string `json:"run_id"`
	GPU         string `json:"gpu_type"`
	Mode        string `json:"mode"`
	Secret      bool   `json:"secret"`
	State       string `json:"state"`
	BuildNumber int64  `json:"build_number"` // 0: not known
}

func (c *submissionShowCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		p, err := s.Poll(ctx, c.ID)
		if err != nil {
			return err
		}
		u, err := s.User(ctx, p.UserID)
		if err != nil {
			return err
		}
		found := shown(p, u.Name)
		if c.Code {
			found.Code = &p.Code
		}
		if c.JSON {
			return cli.PrintJSON(env.Stdout, found)
		}
		found.print(env)
		return nil
	})
}

func shown(p *store.Polled, user string) shownSubmission {
	x := shownSubmission{Runs: []shownRun{}, Open: []openRun{}, Submission: Submission{ID: p.ID, Board: p.Board, FileName: p.FileName, Mode: p.Mode, UserID: p.UserID, UserName: user,
		Time: p.Time, Done: p.Done, Hacked: p.Hacked, Status: p.Job.Status, Error: p.Job.Error, Verdicts: verdicts(p.Verdicts)}}
	for _, r := range p.Runs {
		x.Runs = append(x.Runs, shownRun{r.Runner, r.Mode, r.Secret, r.Passed, r.Score, r.Start, r.End})
		x.GPU = r.Runner
	}
	for _, r := range p.Open {
		x.Open = append(x.Open, openRun{r.RunID, r.GPU, r.Mode, r.Secret, r.State, r.BuildNumber})
		x.GPU = r.GPU
	}
	return x
}

func (x *shownSubmission) print(env *cli.Env) {
	if x.Code != nil {
		fmt.Fprint(env.Stdout, *x.Code)
		return
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush() // writing to stdout
	for _, line := range [][2]string{
		{"submission", fmt.Sprint(x.ID)}, {"board", x.Board}, {"file", x.FileName}, {"user", x.UserID + " " + x.UserName}, {"time", x.Time.Format(time.RFC3339)},
		{"mode", named(x.Mode)}, {"status", named(x.Status)}, {"error", x.Error}, {"ranks", rankWords(x.Verdicts)},
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
		fmt.Fprintf(w, "run\t%s %s %s: %s, %.1f s\n", text.Line(r.GPU, 100), public[r.Secret], text.Line(r.Mode, 40), passed, r.End.Sub(r.Start).Seconds())
	}
	for _, r := range x.Open {
		fmt.Fprintf(w, "open\t%s %s %s: %s, build %d\n", text.Line(r.GPU, 100), public[r.Secret], r.Mode, r.State, r.BuildNumber)
	}
}

type submissionDeleteCmd struct {
	place `embed:""`
	ID    int64 `arg:""`
}

func (c *submissionDeleteCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error { return s.Delete(ctx, c.ID) })
}

type submissionHackedCmd struct {
	place `embed:""`
	ID    int64  `arg:""`
	Why   string `required:""`
}

func (c *submissionHackedCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error { return s.MarkHacked(ctx, c.ID, c.Why) })
}
