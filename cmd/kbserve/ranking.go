package main

import (
	"context"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
)

type showCmd struct {
	place `embed:""`
	Name  string `arg:""`
	GPU   string `name:"gpu"`
	Limit int    `default:"20"`
	JSON  bool   `name:"json"`
}

// A Ranking is one GPU type's in --json.
type Ranking struct {
	GPU     string   `json:"gpu_type"`
	Total   int      `json:"total"`   // who ranks, listed here or not
	Entries []Ranked `json:"entries"` // in order
}

// A Ranked is one line of a ranking.
type Ranked struct {
	Rank       int       `json:"rank"`
	Tied       bool      `json:"tied"`
	Score      float64   `json:"score"` // seconds
	Submission int64     `json:"submission_id"`
	FileName   string    `json:"file_name"`
	Time       time.Time `json:"submission_time"`
	UserID     string    `json:"user_id"`
	UserName   string    `json:"user_name"`
}

func (c *showCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Limit < 0 {
		return cli.Usagef("--limit: got %d, want 0 for all, or more", c.Limit)
	}
	return c.with(ctx, func(s *store.Store) error {
		all, err := c.rankings(ctx, s)
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
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\n", rank, text.Line(e.UserName, 60), text.Line(e.UserID, 20), format.Score(e.Score), e.Time.Format("2006-01-02 15:04"), e.Submission)
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return nil
	})
}

// rankings are those of one GPU type, or of all that the board has.
func (c *showCmd) rankings(ctx context.Context, s *store.Store) ([]Ranking, error) {
	b, err := s.Board(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	gpus := b.GPUs
	if c.GPU != "" {
		gpus = []string{c.GPU}
	}
	all := []Ranking{}
	for _, gpu := range gpus {
		entries, total, err := s.Page(ctx, c.Name, gpu, c.Limit, 0)
		if err != nil {
			return nil, err
		}
		r := Ranking{GPU: gpu, Total: total, Entries: []Ranked{}}
		for _, e := range entries {
			r.Entries = append(r.Entries, Ranked{e.Rank, e.Tied, e.Score, e.SubmissionID, e.FileName, e.Time, e.UserID, e.User})
		}
		all = append(all, r)
	}
	return all, nil
}
