package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
)

type statsCmd struct {
	place `embed:""`
	JSON  bool `name:"json"`
}

// listedStats is --json.
type listedStats struct {
	Users       int          `json:"users"` // who have submitted
	Submissions int          `json:"submissions"`
	Hour        int          `json:"submissions_last_hour"`
	Day         int          `json:"submissions_last_day"`
	Open        int          `json:"open_runs"`
	Boards      []boardStats `json:"boards"`
}

type boardStats struct {
	Board       string         `json:"board"`
	Users       int            `json:"users"`
	Submissions int            `json:"submissions"`
	Statuses    map[string]int `json:"by_status"`
	Modes       map[string]int `json:"by_mode"`
	Hour        int            `json:"submissions_last_hour"`
	Day         int            `json:"submissions_last_day"`
	Open        int            `json:"open_runs"`
}

func (c *statsCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		all, err := s.Stats(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			list := listedStats{Users: all.Users, Submissions: all.Submissions, Hour: all.Hour, Day: all.Day, Open: all.Runs, Boards: []boardStats{}}
			for _, b := range all.Boards {
				list.Boards = append(list.Boards, boardStats(b))
			}
			return cli.PrintJSON(env.Stdout, list)
		}
		w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "BOARD\tUSERS\tSUBMISSIONS\tHOUR\tDAY\tOPEN RUNS\tSTATUSES\tMODES")
		for _, b := range all.Boards {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", text.Line(b.Board, 100), b.Users, b.Submissions, b.Hour, b.Day, b.Open, numbers(b.Statuses), numbers(b.Modes))
		}
		fmt.Fprintf(w, "all\t%d\t%d\t%d\t%d\t%d\t\t\n", all.Users, all.Submissions, all.Hour, all.Day, all.Runs)
		return w.Flush()
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

func named(name string) string {
	if name == "" {
		return "none"
	}
	return text.Line(name, 40)
}
