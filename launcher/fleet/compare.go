package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

// A comparison is what queue files promise against what is connected.
type comparison struct {
	faults []*queuefile.Fault
	queues []queueCount // in the order of the files

	agents []launcher.Agent
	spare  []*launcher.Agent // those that no file has claimed
}

type queueCount struct {
	key             string
	there, promised int
}

// compare says what is missing of what files promise, and which agents of
// their nodes they know nothing of.
func compare(files []*queuefile.File, queues []launcher.Queue, agents []launcher.Agent) comparison {
	c := comparison{faults: []*queuefile.Fault{}, agents: agents}
	for i := range agents {
		c.spare = append(c.spare, &agents[i])
	}
	for _, f := range files {
		promised := f.Agents()
		for from := 0; from < len(promised); {
			to := from + 1
			for to < len(promised) && promised[to].Queue == promised[from].Queue && promised[to].Path == promised[from].Path {
				to++
			}
			c.group(f, promised[from:to], queues)
			from = to
		}
	}
	for _, f := range files {
		c.strangers(f)
	}
	return c
}

func (c *comparison) add(severity string, f *queuefile.File, a *queuefile.Agent, got, want string) {
	c.faults = append(c.faults, &queuefile.Fault{
		File: f.Name(), Line: a.Line, Column: a.Column, Severity: severity,
		Path: a.Path, Got: got, Want: want,
	})
}

// group compares agents of one group on one queue.
func (c *comparison) group(f *queuefile.File, promised []queuefile.Agent, queues []launcher.Queue) {
	first := &promised[0]
	count := c.count(first.Queue)
	count.promised += len(promised)
	queue := findQueue(first.Queue, queues, c.agents)
	if queue == nil {
		c.add(queuefile.Error, f, first, fmt.Sprintf("no queue %q in Buildkite", first.Queue),
			fmt.Sprintf("it made before agents can join it: Agents, the cluster, Queues, New Queue, self hosted; there are %s", keys(queues)))
		return
	}
	if queue.Paused {
		c.add(queuefile.Error, f, first, fmt.Sprintf("queue %s paused%s", queue.Key, because(queue.PausedNote)), "it dispatching")
	}
	// The exactly right ones go first, so that no other agent is blamed for
	// missing what one of them has.
	var missing []*queuefile.Agent
	for i := range promised {
		p := &promised[i]
		if a := c.take(queue, p.Tags, func(a *launcher.Agent) bool { return matches(a, p.Tags) == len(p.Tags) }); a != nil {
			count.there += c.state(f, p, a)
		} else {
			missing = append(missing, p)
		}
	}
	for _, p := range missing {
		if a := c.take(queue, p.Tags, func(a *launcher.Agent) bool { return mayBe(a, p) }); a != nil {
			c.tags(f, p, a)
		} else {
			c.add(queuefile.Error, f, p, fmt.Sprintf("no agent on queue %s for GPU %s", p.Queue, strings.Join(p.Devices, ", ")),
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

// mayBe tells whether a with other tags is meant to be p: it is on p's node,
// has p's GPU, or says of neither where it is.
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

// count returns the line of a queue.
func (c *comparison) count(key string) *queueCount {
	i := slices.IndexFunc(c.queues, func(q queueCount) bool { return q.key == key })
	if i < 0 {
		i = len(c.queues)
		c.queues = append(c.queues, queueCount{key: key})
	}
	return &c.queues[i]
}

// findQueue finds a queue by key: of several clusters the one with agents.
func findQueue(key string, queues []launcher.Queue, agents []launcher.Agent) *launcher.Queue {
	var found *launcher.Queue
	for i := range queues {
		q := &queues[i]
		if q.Key != key {
			continue
		}
		if slices.ContainsFunc(agents, func(a launcher.Agent) bool { return a.On(q) }) {
			return q
		}
		if found == nil {
			found = q
		}
	}
	return found
}

// take claims the fitting agent on queue that has most of tags.
func (c *comparison) take(queue *launcher.Queue, tags []string, fits func(*launcher.Agent) bool) *launcher.Agent {
	best, most := -1, 0
	for i, a := range c.spare {
		if n := matches(a, tags); n > most && a.On(queue) && fits(a) {
			best, most = i, n
		}
	}
	if best < 0 {
		return nil
	}
	a := c.spare[best]
	c.spare = slices.Delete(c.spare, best, best+1)
	return a
}

// state reports an agent that is the right one and takes no jobs; it returns 1
// for one that does.
func (c *comparison) state(f *queuefile.File, p *queuefile.Agent, a *launcher.Agent) int {
	switch {
	case a.Paused:
		c.add(queuefile.Error, f, p, fmt.Sprintf("agent %s paused%s", printable(a.Name), because(a.PausedNote)), "it taking jobs")
	case a.State != "connected":
		c.add(queuefile.Error, f, p, fmt.Sprintf("agent %s %s", printable(a.Name), printable(a.State)), "it connected")
	default:
		return 1
	}
	return 0
}

// tags reports what an agent that must be p's has instead of p's tags.
func (c *comparison) tags(f *queuefile.File, p *queuefile.Agent, a *launcher.Agent) {
	var got, want []string
	for _, tag := range p.Tags[1:] {
		if slices.Contains(a.Tags, tag) {
			continue
		}
		want = append(want, tag)
		key, _, _ := strings.Cut(tag, "=")
		if has := tagged(a, key); has != "" {
			got = append(got, printable(has))
		} else {
			got = append(got, "no "+key)
		}
	}
	c.add(queuefile.Error, f, p, fmt.Sprintf("agent %s with %s", printable(a.Name), strings.Join(got, ", ")), strings.Join(want, ", "))
}

// strangers reports agents of a file's nodes that it does not know: a second
// agent on one GPU is the worst of them.
func (c *comparison) strangers(f *queuefile.File) {
	told := map[*launcher.Agent]bool{}
	promised := f.Agents()
	for i := range promised {
		p := &promised[i]
		device := p.Tags[len(p.Tags)-1]
		for _, a := range c.spare {
			if told[a] || !slices.Contains(a.Tags, "node="+p.Node) || !slices.Contains(a.Tags, device) {
				continue
			}
			told[a] = true
			c.add(queuefile.Error, f, p, fmt.Sprintf("agent %s too with node=%s and %s, on queue %s", printable(a.Name), p.Node, device, printable(a.Queue)), "one agent for each GPU")
		}
	}
	for i := range promised {
		p := &promised[i]
		for _, a := range c.spare {
			if told[a] || !slices.Contains(a.Tags, "node="+p.Node) {
				continue
			}
			told[a] = true
			c.add(queuefile.Note, f, p, fmt.Sprintf("agent %s of node %s on queue %s", printable(a.Name), p.Node, printable(a.Queue)), "agents that are in the file")
		}
	}
}

func because(note string) string {
	if note == "" {
		return ""
	}
	return ": " + printable(note)
}

func keys(queues []launcher.Queue) string {
	if len(queues) == 0 {
		return "none"
	}
	var all []string
	for _, q := range queues {
		if len(all) == 20 {
			all = append(all, "…")
			break
		}
		all = append(all, printable(q.Key))
	}
	return strings.Join(all, ", ")
}

// printable is text from Buildkite, where anybody may have written it, as one
// short line.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 100 {
		s = string(r[:100]) + "…"
	}
	return s
}
