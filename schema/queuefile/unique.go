package queuefile

import (
	"fmt"
	"strings"
)

// places remembers who took a name, over one file or several.
type places map[string]place

type place struct {
	file *File
	path path
	line int
}

// A claimer reports names that are taken already: of nodes, of GPUs, and of
// queues that are to have one agent.
type claimer struct {
	*report
	taken    places
	within   bool            // look for repetitions within the file, not across files
	reported map[string]bool // paths with such a fault: eight GPUs of one count are one
}

// unique claims every name of the file. Once with places of its own, when it
// is read; then with those of all files, for what it shares with others.
func (r *report) unique(taken places, within bool) {
	c := &claimer{r, taken, within, map[string]bool{}}
	for i, image := range r.Images {
		if within { // each machine has its own
			c.claim("image", image.Reference, path{"images", i, "reference"}, image.Reference, "a reference of its own")
		}
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		c.claim("node", n.Name, path{"nodes", i, "name"}, n.Name, "a name of its own")
		for j := range n.GPUs {
			p := path{"nodes", i, "gpus", j}
			c.devices(p, &n.GPUs[j])
			c.queues(p, n, &n.GPUs[j])
		}
	}
}

func (c *claimer) claim(kind, name string, p path, shown any, want string) {
	first, twice := c.taken[kind+" "+name]
	switch {
	case name == "" || c.reported[p.String()]:
		return
	case !twice:
		c.taken[kind+" "+name] = place{c.File, p, c.at(p).Line}
		return
	case c.within != (first.file == c.File):
		return
	case first.file != c.File:
		c.wrong(p, shown, "%s, it is that of %s in %s:%d", want, first.path, first.file.name, first.line)
	default:
		c.wrong(p, shown, "%s, it is that of %s on line %d", want, first.path, first.line)
	}
	c.reported[p.String()] = true
}

func (c *claimer) devices(p path, g *Group) {
	for k, uuid := range g.UUIDs {
		c.claim("GPU", strings.ToLower(uuid), p.to("uuids", k), uuid, "a GPU of its own")
	}
	if len(g.UUIDs) > 0 {
		return
	}
	indexes, _ := g.devices()
	for k, index := range indexes {
		at := p.to("count")
		if len(g.Indexes) > 0 {
			at = p.to("indexes", k)
		}
		// An index is its machine's own, and each maker's driver counts from 0: what
		// two types share, if anything, [Check] knows.
		c.claim(fmt.Sprintf("index on node %d of %p, %s", p[1], c.File, g.Type), index, at, said("GPU "+index), "a GPU of its own")
	}
}

func (c *claimer) queues(p path, n *Node, g *Group) {
	if !g.perAgent() || c.Vendor == "" || n.Name == "" || g.Type == "" {
		return
	}
	for _, a := range c.agents(p[1].(int), p[3].(int)) {
		c.claim("queue", a.Queue, p.to("queue"), a.Queue, "a queue for each agent ({node} in the pattern helps)")
	}
}
