// Kblaunch sends kernel submissions to Buildkite and prints their verdicts.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/examples"
	"github.com/gpu-mode/kbgen/pipelines"
)

// exitTrouble is a run that gave no verdict on the submission.
const exitTrouble = 3

func main() { os.Exit(cli.Main(program())) }

type grammar struct {
	Submit   submitCmd   `cmd:""`
	Watch    watchCmd    `cmd:""`
	List     listCmd     `cmd:""`
	Result   resultCmd   `cmd:""`
	Log      logCmd      `cmd:""`
	Cancel   cancelCmd   `cmd:""`
	Retry    retryCmd    `cmd:""`
	Compare  compareCmd  `cmd:""`
	Examples examplesCmd `cmd:""`
	Queues   queuesCmd   `cmd:""`
}

func program() cli.Program {
	return cli.Program{
		Name:    "kblaunch",
		Grammar: &grammar{},
		Help:    help,
		Failed:  exitTrouble,
		Values: map[string]func() []string{
			"--gpu": pipelines.Fleet.Names,
			"--queue": func() (queues []string) {
				for _, g := range pipelines.Fleet {
					queues = append(queues, g.Queue)
				}
				return queues
			},
			"--state": states,
			"task":    exampleNames,
		},
	}
}

func exampleNames() (names []string) {
	for _, e := range examples.List() {
		names = append(names, e.Name)
	}
	return names
}

type examplesCmd struct {
	JSON bool `help:"print JSON"`
}

// exampleJSON is an example as --json prints it.
type exampleJSON struct {
	Name        string   `json:"name"`
	Lang        string   `json:"lang"`
	Submissions []string `json:"submissions"`
	Description string   `json:"description"`
}

// Run lists the examples.
func (c *examplesCmd) Run(_ context.Context, env *cli.Env) error {
	var list []exampleJSON
	for _, e := range examples.List() {
		list = append(list, exampleJSON{e.Name, e.Lang, e.Submissions, e.Description})
	}
	return cli.PrintList(env.Stdout, c.JSON, list, "TASK\tLANG\tSUBMISSIONS\tDESCRIPTION", func(e exampleJSON) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", e.Name, e.Lang, strings.Join(e.Submissions, " "), e.Description)
	})
}
