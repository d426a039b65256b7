package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/schema/near"
	"github.com/gpu-mode/kbgen/schema/queuefile"
	"github.com/gpu-mode/kbgen/templates"
)

// Containers are the agents in containers that stand for a machine.
type Containers struct {
	File   *queuefile.File   // free of errors
	Node   string            // which of the file's nodes the machine is
	Rows   map[string]Row    // by GPU type
	GPUs   []facts.GPU       // of this machine, for files that name GPUs by index
	Images map[string]string // by slot; "*" is that of the other slots
	Pids   int               // of a slot: processes and threads
}

// Agents returns an agent for each slot, and notes for the vendor to read.
func (c *Containers) Agents() (agents []templates.ContainerAgent, notes []string, err error) {
	unused := maps.Clone(c.Images)
	delete(unused, "*")
	var nodes []string
	for i := range c.File.Nodes {
		nodes = append(nodes, c.File.Nodes[i].Name)
	}
	for _, a := range c.File.Agents() {
		if a.Node != c.Node {
			continue
		}
		row, ok := c.Rows[a.GPUType]
		if !ok {
			return nil, notes, fmt.Errorf("%s: GPU type %q is not in kbgen's table", a.Path, a.GPUType)
		}
		slot := fmt.Sprintf("gpu%d", len(agents))
		delete(unused, slot)
		image, ok := c.Images[slot]
		if !ok {
			image = c.Images["*"]
		}
		if image == "" {
			return nil, notes, fmt.Errorf("--image: got none for %s", slot)
		}
		devices, err := c.devices(&row, &a)
		if err != nil {
			return nil, notes, err
		}
		if row.Platform == Docker {
			notes = append(notes, "steps for "+row.Name+" start a container of their own and need an agent that has docker; these have none")
		}
		if !slices.Equal(devices, a.Devices) && len(devices) > 0 {
			notes = append(notes, "the queue file names GPUs by index: the UUIDs are those of this machine")
		}
		agents = append(agents, templates.ContainerAgent{
			Slot: slot, Image: image, Tags: a.Tags, Devices: devices, CPUs: a.Share.CPUs, MemoryGiB: a.Share.MemoryGiB, Pids: c.Pids,
		})
	}
	if len(agents) == 0 {
		return nil, notes, fmt.Errorf("%s: got no node %q, want %s", c.File.Name(), c.Node, near.Perhaps(c.Node, nodes))
	}
	for slot := range unused {
		return nil, notes, fmt.Errorf("--image: got one for %q, want a slot from gpu0 to gpu%d", slot, len(agents)-1)
	}
	slices.Sort(notes)
	return agents, slices.Compact(notes), nil
}

// devices are the UUIDs that an agent's container asks for.
func (c *Containers) devices(row *Row, a *queuefile.Agent) ([]string, error) {
	byUUID := strings.HasPrefix(a.Tags[len(a.Tags)-1], "gpu-uuid=")
	switch {
	case row.Vendor == "none":
		return nil, nil
	case row.Vendor != facts.NVIDIA:
		return nil, fmt.Errorf("%s: got %s, want NVIDIA's GPUs or none: what a container of another maker's needs is not in a queue file", a.Path, row.Name)
	case byUUID:
		return a.Devices, nil
	}
	var uuids []string
	for _, index := range a.Devices {
		at := slices.IndexFunc(c.GPUs, func(g facts.GPU) bool { return g.Vendor == row.Vendor && strconv.Itoa(g.Index) == index })
		if at < 0 || c.GPUs[at].UUID == "" || c.GPUs[at].MIG {
			return nil, fmt.Errorf("%s: got GPU %s by its index, and this machine has no whole GPU with that index and a UUID: "+
				"run kbnode compose on %s, or name uuids (kbnode facts --queue-file writes them)", a.Path, index, a.Node)
		}
		uuids = append(uuids, c.GPUs[at].UUID)
	}
	return uuids, nil
}
