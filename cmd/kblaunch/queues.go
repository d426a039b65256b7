package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

// queuesCmd shows what is connected, or compares it with queue files.
type queuesCmd struct {
	Check  []string `placeholder:"FILE"`
	Format string   `enum:"text,json" default:"text"`

	Org string `var:"BUILDKITE_ORG" default:"gpu-mode"`
	API string `name:"api" var:"KBLAUNCH_API_URL" default:"https://api.buildkite.com/"`
}

func (c *queuesCmd) Run(ctx context.Context, env *cli.Env) error {
	files, err := readQueueFiles(c.Check)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	token := env.Getenv(tokenVar)
	if token == "" {
		return cli.WithHint(cli.Usagef("no API token"), "put one with the scopes read_clusters and read_agents into %s", tokenVar)
	}
	client, err := launcher.New(launcher.Options{
		BaseURL: c.API, Token: token, Org: c.Org, UserAgent: "kblaunch/" + cli.Version(),
		Pipeline: "kernelbot", // not used: queues belong to the organization
	})
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	queues, err := client.Queues(ctx)
	if err != nil {
		return withoutQueues(err)
	}
	agents, err := client.Agents(ctx)
	if err != nil {
		return withoutQueues(err)
	}
	if len(files) == 0 {
		return c.list(env.Stdout, queues, agents)
	}
	return c.compare(env.Stdout, files, queues, agents)
}

// readQueueFiles reads files that are free of errors. What kbgen's table of
// GPU types says of them is for kbgen vendor check.
func readQueueFiles(names []string) ([]*queuefile.File, error) {
	var files []*queuefile.File
	for _, name := range names {
		doc, err := readQueueFile(name)
		if err != nil {
			return nil, err
		}
		f, faults := queuefile.Decode(name, doc)
		if queuefile.Failed(faults) {
			return nil, faults[slices.IndexFunc(faults, func(f *queuefile.Fault) bool { return f.Severity == queuefile.Error })]
		}
		files = append(files, f)
	}
	return files, nil
}

func readQueueFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, queuefile.MaxSize+1))
}

// withoutQueues is the end of a run that could not look: trouble.
func withoutQueues(err error) error {
	out := error(&cli.ExitError{Status: exitTrouble, Err: err})
	var refused *launcher.APIError
	if errors.As(err, &refused) && (refused.Status == http.StatusForbidden || refused.Status == http.StatusUnauthorized) {
		return cli.WithHint(out, "the token in %s needs the scopes read_clusters and read_agents", tokenVar)
	}
	return out
}

// A queueLine is one queue as the listing shows it.
type queueLine struct {
	Queue   string `json:"queue"`
	Cluster string `json:"cluster"`
	Agents  int    `json:"agents"`
	Idle    int    `json:"idle"` // neither busy nor paused nor stopping
	Busy    int    `json:"busy"`
	Paused  bool   `json:"paused"`
	Note    string `json:"note,omitempty"`
}

func (c *queuesCmd) list(w io.Writer, queues []launcher.Queue, agents []launcher.Agent) error {
	lines := []queueLine{}
	for i := range queues {
		q := &queues[i]
		line := queueLine{Queue: q.Key, Cluster: q.Cluster, Paused: q.Paused, Note: q.PausedNote}
		for j := range agents {
			switch a := &agents[j]; {
			case !a.On(q):
				continue
			case a.Busy():
				line.Busy++
			case !a.Paused && a.State == "connected":
				line.Idle++
			}
			line.Agents++
		}
		lines = append(lines, line)
	}
	if c.Format == "json" {
		return printJSON(w, lines)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "QUEUE\tCLUSTER\tAGENTS\tIDLE\tBUSY\tSTATE")
	for _, l := range lines {
		state := "dispatching"
		if l.Paused {
			state = "paused"
			if l.Note != "" {
				state += ": " + printable(l.Note)
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%s\n", printable(l.Queue), printable(l.Cluster), l.Agents, l.Idle, l.Busy, state)
	}
	return table.Flush()
}

func (c *queuesCmd) compare(w io.Writer, files []*queuefile.File, queues []launcher.Queue, agents []launcher.Agent) error {
	found := compare(files, queues, agents)
	if c.Format == "json" {
		if err := printJSON(w, found.faults); err != nil {
			return err
		}
	} else {
		for _, f := range found.faults {
			fmt.Fprintln(w, f)
		}
		for _, q := range found.queues {
			fmt.Fprintf(w, "queue %s: %d of %d agents connected\n", q.key, q.there, q.promised)
		}
	}
	if queuefile.Failed(found.faults) {
		return &cli.ExitError{Status: cli.ExitFailed}
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
