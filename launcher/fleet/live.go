package fleet

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Live is what Buildkite knows of an organization's machines.
type Live struct {
	Queues []launcher.Queue // of all clusters
	Agents []launcher.Agent // connected or stopping
}

// Read asks for queues and agents: one request for the clusters, one for each
// cluster, one for each hundred agents. It needs the scopes read_clusters and
// read_agents.
//
// Errors: those of [launcher.Client.Queues] and [launcher.Client.Agents].
func Read(ctx context.Context, c *launcher.Client) (*Live, error) {
	queues, err := c.Queues(ctx)
	if err != nil {
		return nil, err
	}
	agents, err := c.Agents(ctx)
	if err != nil {
		return nil, err
	}
	return &Live{queues, agents}, nil
}

// A Queue sums up one queue.
type Queue struct {
	Key     string `json:"queue"`
	Cluster string `json:"cluster"`
	Agents  int    `json:"agents"`
	Idle    int    `json:"idle"` // neither busy nor paused nor stopping
	Busy    int    `json:"busy"`
	Paused  bool   `json:"paused"` // nothing is dispatched
	Note    string `json:"note,omitempty"`
}

// List sums up every queue, in Buildkite's order. It is never nil.
func (l *Live) List() []Queue {
	list := []Queue{}
	for i := range l.Queues {
		q := &l.Queues[i]
		sum := Queue{
			Key: text.Lines(q.Key), Cluster: text.Lines(q.Cluster), Paused: q.Paused, Note: text.Lines(q.PausedNote),
		}
		for j := range l.Agents {
			switch a := &l.Agents[j]; {
			case !a.On(q):
				continue
			case a.Busy():
				sum.Busy++
			case !a.Paused && a.State == launcher.Connected:
				sum.Idle++
			}
			sum.Agents++
		}
		list = append(list, sum)
	}
	return list
}

// WriteTable writes queues as a table for people.
func WriteTable(w io.Writer, queues []Queue) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "QUEUE\tCLUSTER\tAGENTS\tIDLE\tBUSY\tSTATE")
	for _, q := range queues {
		state := "dispatching"
		if q.Paused {
			state = "paused" + because(q.Note)
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%s\n", clean(q.Key), clean(q.Cluster), q.Agents, q.Idle, q.Busy, state)
	}
	return table.Flush()
}
