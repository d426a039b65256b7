package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/examples"
)

type examplesCmd struct{ JSON bool }

// exampleJSON is an example as --json prints it.
type exampleJSON struct {
	Name        string   `json:"name"`
	Lang        string   `json:"lang"`
	Submissions []string `json:"submissions"`
	Description string   `json:"description"`
}

// Run lists the examples.
func (c *examplesCmd) Run(_ context.Context, env *cli.Env) error {
	if c.JSON {
		list := []exampleJSON{}
		for _, e := range examples.List() {
			list = append(list, exampleJSON{e.Name, e.Lang, e.Submissions, e.Description})
		}
		return cli.PrintJSON(env.Stdout, list)
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TASK\tLANG\tSUBMISSIONS\tDESCRIPTION")
	for _, e := range examples.List() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.Name, e.Lang, strings.Join(e.Submissions, " "), e.Description)
	}
	return w.Flush()
}
