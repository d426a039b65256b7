package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/launcher/fleet"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

// queuesCmd shows what is connected, or compares it with queue files.
type queuesCmd struct {
	Check []string `placeholder:"FILE" help:"a queue file to compare; may be repeated"`
	JSON  bool     `help:"print an array (kbgen schema agents), with --check the findings"`

	Org string `var:"BUILDKITE_ORG" default:"gpu-mode" placeholder:"SLUG" help:"slug of the organization"`
	API string `name:"api" var:"KBLAUNCH_API_URL" default:"https://api.buildkite.com/" placeholder:"URL" help:"the address of the REST API"`
}

func (c *queuesCmd) Run(ctx context.Context, env *cli.Env) error {
	files, err := readQueueFiles(c.Check)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	client, err := newClient(env, "read_clusters and read_agents", launcher.Options{
		BaseURL: c.API, Org: c.Org,
		Pipeline: "kernelbot", // not used: queues belong to the organization
	})
	if err != nil {
		return err
	}
	live, err := fleet.Read(ctx, client)
	if err != nil {
		return withoutQueues(err)
	}
	if len(files) == 0 {
		if c.JSON {
			return cli.PrintJSON(env.Stdout, live.List())
		}
		return fleet.WriteTable(env.Stdout, live.List())
	}
	return c.compare(env.Stdout, live.Compare(files))
}

func (c *queuesCmd) compare(w io.Writer, found fleet.Comparison) error {
	var err error
	if c.JSON {
		err = cli.PrintJSON(w, found.Faults)
	} else {
		err = found.WriteText(w)
	}
	if err == nil && queuefile.Failed(found.Faults) {
		return &cli.ExitError{Status: cli.ExitFailed}
	}
	return err
}

// readQueueFiles reads files that are free of errors.
func readQueueFiles(names []string) ([]*queuefile.File, error) {
	var files []*queuefile.File
	for _, name := range names {
		doc, err := readFile(name, queuefile.MaxSize)
		if err != nil {
			return nil, err
		}
		f, faults := queuefile.Decode(name, doc)
		if queuefile.Failed(faults) {
			return nil, faults[slices.IndexFunc(faults, func(f *schema.Finding) bool { return f.Severity == schema.SeverityError })]
		}
		files = append(files, f)
	}
	return files, nil
}

// readFile reads at most one byte more than limit.
func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// withoutQueues is the error of a run that got no answer: trouble.
func withoutQueues(err error) error {
	out := error(&cli.ExitError{Status: exitTrouble, Err: err})
	if refused, ok := errors.AsType[*launcher.APIError](err); ok && (refused.Status == http.StatusForbidden || refused.Status == http.StatusUnauthorized) {
		return cli.WithHint(out, "the token in %s needs the scopes read_clusters and read_agents", tokenVar)
	}
	return out
}
