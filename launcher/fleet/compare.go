package fleet

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/queuefile"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Comparison is what queue files promise against what is there.
type Comparison struct {
	Faults []*schema.Finding // in the order of the files; never nil
	Queues []Count           // in the order of the files
}

// A Count says how many of the agents that files promise on a queue are there
// as promised: connected, with their tags, taking jobs.
type Count struct {
	Queue           string
	There, Promised int
}

// Compare says what is missing of what files promise, and which agents of
// their nodes they know nothing of. The files must be free of errors.
//
// A promised agent is known by its tags. An agent with other tags is reported
// as such, and the promised one not as missing, when it serves the promised
// queue and is on the node, has the GPU, or says nothing of either.
func (l *Live) Compare(files []*queuefile.File) Comparison {
	c := &comparer{live: l, found: Comparison{Faults: []*schema.Finding{}}}
	for i := range l.Agents {
		c.unclaimed = append(c.unclaimed, &l.Agents[i])
	}
	for _, f := range files {
		promised := f.Agents()
		for from := 0; from < len(promised); {
			to := from + 1
			for to < len(promised) && promised[to].Queue == promised[from].Queue && promised[to].Path == promised[from].Path {
				to++
			}
			c.group(f, promised[from:to])
			from = to
		}
	}
	for _, f := range files {
		c.unexpected(f)
	}
	return c.found
}

// WriteText writes a fault on each line, then a line for each queue.
func (c *Comparison) WriteText(w io.Writer) error {
	for _, f := range c.Faults {
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
	}
	for _, q := range c.Queues {
		if _, err := fmt.Fprintf(w, "queue %s: %d of %d agents connected\n", q.Queue, q.There, q.Promised); err != nil {
			return err
		}
	}
	return nil
}

// A comparer is a comparison under way.
type comparer struct {
	live      *Live
	unclaimed []*launcher.Agent // no file has claimed them yet
	found     Comparison
}

func (c *comparer) add(severity schema.Severity, f *queuefile.File, a *queuefile.Agent, got, want string) {
	c.found.Faults = append(c.found.Faults, &schema.Finding{
		File: f.Name(), Line: a.Line, Column: a.Column, Severity: severity,
		Path: a.Path, Got: got, Want: want,
	})
}

// group compares agents of one group on one queue.
func (c *comparer) group(f *queuefile.File, promised []queuefile.Agent) {
	first := &promised[0]
	count := c.count(first.Queue)
	count.Promised += len(promised)
	queue := c.live.queue(first.Queue)
	if queue == nil {
		c.add(schema.SeverityError, f, first, fmt.Sprintf("no queue %q in Buildkite", first.Queue),
			fmt.Sprintf("it made before agents can join it: Agents, the cluster, Queues, New Queue, self hosted; there are %s", c.live.keys()))
		return
	}
	if queue.Paused {
		c.add(schema.SeverityError, f, first, fmt.Sprintf("queue %s paused%s", queue.Key, because(queue.PausedNote)), "it dispatching")
	}
	// The exactly right ones go first, so that no other agent is blamed for
	// missing what one of them has.
	var missing []*queuefile.Agent
	for i := range promised {
		p := &promised[i]
		if a := c.take(queue, p.Tags, func(a *launcher.Agent) bool { return matches(a, p.Tags) == len(p.Tags) }); a != nil {
			count.There += c.state(f, p, a)
		} else {
			missing = append(missing, p)
		}
	}
	for _, p := range missing {
		if a := c.take(queue, p.Tags, func(a *launcher.Agent) bool { return mayBe(a, p) }); a != nil {
			c.tags(f, p, a)
		} else {
			c.add(schema.SeverityError, f, p, fmt.Sprintf("no agent on queue %s for GPU %s", p.Queue, strings.Join(p.Devices, ", ")),
				"one connected with the tags "+strings.Join(p.Tags, ","))
		}
	}
}

// matches counts the tags that an agent on their queue has. The first names
// the queue, which an agent on the default one need not.
func matches(a *launcher.Agent, tags []string) int {
	n := 1
	for _, tag := range tags[1:] {
		if slices.Contains(a.Tags, tag) {
			n++
		}
	}
	return n
}

// mayBe reports whether a, with other tags, can be taken for p: it is on p's
// node, has p's GPU, or says nothing of either.
func mayBe(a *launcher.Agent, p *queuefile.Agent) bool {
	if uuid := p.Tags[len(p.Tags)-1]; strings.HasPrefix(uuid, "gpu-uuid=") && slices.Contains(a.Tags, uuid) {
		return true
	}
	node := tagged(a, "node")
	return node == "" || node == "node="+p.Node
}

// tagged returns the agent's tag with that key, "" when it has none.
func tagged(a *launcher.Agent, key string) string {
	for _, tag := range a.Tags {
		if strings.HasPrefix(tag, key+"=") {
			return tag
		}
	}
	return ""
}

// count returns the count of a queue.
func (c *comparer) count(key string) *Count {
	i := slices.IndexFunc(c.found.Queues, func(q Count) bool { return q.Queue == key })
	if i < 0 {
		i = len(c.found.Queues)
		c.found.Queues = append(c.found.Queues, Count{Queue: key})
	}
	return &c.found.Queues[i]
}

// queue finds a queue by key: of several clusters the one with agents.
func (l *Live) queue(key string) *launcher.Queue {
	var found *launcher.Queue
	for i := range l.Queues {
		q := &l.Queues[i]
		if q.Key != key {
			continue
		}
		if slices.ContainsFunc(l.Agents, func(a launcher.Agent) bool { return a.On(q) }) {
			return q
		}
		if found == nil {
			found = q
		}
	}
	return found
}

// keys lists the queues that there are, 20 of them.
func (l *Live) keys() string {
	if len(l.Queues) == 0 {
		return "none"
	}
	var all []string
	for _, q := range l.Queues {
		if len(all) == 20 {
			all = append(all, "…")
			break
		}
		all = append(all, clean(q.Key))
	}
	return strings.Join(all, ", ")
}

// take claims the fitting agent on queue that has most of tags.
func (c *comparer) take(queue *launcher.Queue, tags []string, fits func(*launcher.Agent) bool) *launcher.Agent {
	best, most := -1, 0
	for i, a := range c.unclaimed {
		if n := matches(a, tags); n > most && a.On(queue) && fits(a) {
			best, most = i, n
		}
	}
	if best < 0 {
		return nil
	}
	a := c.unclaimed[best]
	c.unclaimed = slices.Delete(c.unclaimed, best, best+1)
	return a
}

// state reports an agent that is the right one and takes no jobs; it returns 1
// for one that does.
func (c *comparer) state(f *queuefile.File, p *queuefile.Agent, a *launcher.Agent) int {
	switch {
	case a.Paused:
		c.add(schema.SeverityError, f, p, fmt.Sprintf("agent %s paused%s", clean(a.Name), because(a.PausedNote)), "it taking jobs")
	case a.State != launcher.Connected:
		c.add(schema.SeverityError, f, p, fmt.Sprintf("agent %s %s", clean(a.Name), clean(a.State)), "it connected")
	default:
		return 1
	}
	return 0
}

// tags reports what an agent that must be p's has instead of p's tags.
func (c *comparer) tags(f *queuefile.File, p *queuefile.Agent, a *launcher.Agent) {
	var got, want []string
	for _, tag := range p.Tags[1:] {
		if slices.Contains(a.Tags, tag) {
			continue
		}
		want = append(want, tag)
		key, _, _ := strings.Cut(tag, "=")
		if has := tagged(a, key); has != "" {
			got = append(got, clean(has))
		} else {
			got = append(got, "no "+key)
		}
	}
	c.add(schema.SeverityError, f, p, fmt.Sprintf("agent %s with %s", clean(a.Name), strings.Join(got, ", ")), strings.Join(want, ", "))
}

// unexpected reports agents of a file's nodes that it does not know. A second
// agent on one GPU is the worst of them.
func (c *comparer) unexpected(f *queuefile.File) {
	reported := map[*launcher.Agent]bool{}
	promised := f.Agents()
	for _, sameGPU := range []bool{true, false} {
		for i := range promised {
			p := &promised[i]
			device := p.Tags[len(p.Tags)-1]
			for _, a := range c.unclaimed {
				if reported[a] || !slices.Contains(a.Tags, "node="+p.Node) || sameGPU && !slices.Contains(a.Tags, device) {
					continue
				}
				reported[a] = true
				if sameGPU {
					c.add(schema.SeverityError, f, p, fmt.Sprintf("agent %s too with node=%s and %s, on queue %s", clean(a.Name), p.Node, device, clean(a.Queue)), "one agent for each GPU")
				} else {
					c.add(schema.SeverityNote, f, p, fmt.Sprintf("agent %s of node %s on queue %s", clean(a.Name), p.Node, clean(a.Queue)), "agents that are in the file")
				}
			}
		}
	}
}

func because(note string) string {
	if note == "" {
		return ""
	}
	return ": " + clean(note)
}

// clean is text from Buildkite, where anybody may have written it, as one short
// line.
func clean(s string) string { return text.Line(s, 100) }
