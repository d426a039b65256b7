package templates

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

// A Node is a machine of a vendor's, as the units of kbnode see it. The units are
// the same for all slots.
type Node struct {
	Program string        // kbnode, "/usr/bin/kbnode"
	Agent   string        // buildkite-agent, "/usr/bin/buildkite-agent"
	Systemd int           // its version
	Stop    time.Duration // what the last job may take when an agent is stopped
	Docker  bool          // some slot has docker
	// Allow are addresses of the vendor's network that agents need, as 10.0.0.2.
	Allow []netip.Addr
}

// A NodeFile is a file that all slots of a node share.
type NodeFile struct{ Name, Content string }

// delegateSubgroup is the first systemd with DelegateSubgroup=.
const delegateSubgroup = 254

// Units returns kbnode's units, in an order in which each may refer to the ones
// before it.
//
// Errors: *[PlaceholderError].
func (n *Node) Units() ([]NodeFile, error) {
	names := []string{"kbnode-prepare.service", "kbnode-agents.target", "kbnode-disk@.service", "kbnode-agent@.service", "kbnode-check.service", "kbnode-check.timer"}
	if n.Docker {
		names = append(names, "kbnode-proxy@.socket", "kbnode-proxy@.service", "kbnode-image.service", "kbnode-image.timer")
	}
	return n.files("", names)
}

// Hooks returns the agents' hooks. A hook only starts kbnode.
//
// Errors: *[PlaceholderError].
func (n *Node) Hooks() ([]NodeFile, error) { return n.files("hooks/", []string{"pre-bootstrap"}) }

func (n *Node) files(dir string, names []string) ([]NodeFile, error) {
	values := []value{{"program", n.Program, absolutePath}, {"agent", n.Agent, absolutePath}}
	hardening, err := fill("node/hardening.conf", "", nil)
	if err != nil {
		return nil, err
	}
	allow := ""
	for _, addr := range n.Allow {
		allow += " " + addr.WithZone("").String()
	}
	var out []NodeFile
	for _, name := range names {
		body, err := fill("node/"+dir+name, "kbnode's units", values, "@KBNODE@", n.Program, "@AGENT@", n.Agent,
			"@TOKEN@", TokenInput("/etc/kbnode/token"), "@HARDENING@\n", hardening, "@ALLOW@", allow,
			"@STOP@", strconv.Itoa(int(n.Stop.Seconds())))
		if err != nil {
			return nil, err
		}
		out = append(out, NodeFile{name, body})
	}
	return out, nil
}

// TokenInput is the setting by which systemd gives an agent its token from a file of
// root's, as standard input.
func TokenInput(file string) string { return "StandardInput=file:" + file }

// HostDropIn is the drop-in for the agent of a slot without containers, whose
// user needs these numeric groups.
func (n *Node) HostDropIn(groups []int) (string, error) {
	var supplementary, delegate string
	if len(groups) > 0 {
		supplementary = "SupplementaryGroups=" + strings.Trim(fmt.Sprint(groups), "[]") + "\n"
	}
	if n.Systemd >= delegateSubgroup { // kbrun makes a control group beside the agent's for each submission
		delegate = "Delegate=memory pids\nDelegateSubgroup=agent\n"
	}
	return fill("node/host.conf", "", nil, "@GROUPS@", supplementary, "@DELEGATE@\n", delegate)
}

// A NodeDisk is the file system of a slot.
type NodeDisk struct {
	Slot       string
	Bytes      int64
	Image, Dir string // of DisksDir and SlotsDir in package node
}

// Unit returns the unit that mounts it.
//
// Errors: *[PlaceholderError].
func (d *NodeDisk) Unit() (string, error) {
	values := []value{{"slot", d.Slot, slotName}, {"image", d.Image, absolutePath}, {"directory", d.Dir, absolutePath}}
	return fill("node/slot.mount", "a slot's disk", values, "@SLOT@", d.Slot, "@BYTES@", strconv.FormatInt(d.Bytes, 10), "@IMAGE@", d.Image, "@DIR@", d.Dir)
}

// A NodeSlice is a slot's limits.
type NodeSlice struct {
	Slot, GPUType string
	CPUs          string // "0-7,64-71"
	MemoryNodes   string // "0"; empty: all
	MemoryBytes   int64
	Pids          int
	Nodes         []string // device nodes, which its jobs may read and write, and not make
}

var cpuList = form{text.Pattern(`^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`), "a list of numbers"}

// Unit returns kbnode-<slot>.slice.
//
// Errors: *[PlaceholderError].
func (s *NodeSlice) Unit() (string, error) {
	values := []value{{"slot", s.Slot, slotName}, {"GPU type", s.GPUType, slotName}, {"CPUs", s.CPUs, cpuList}}
	nodes := ""
	if s.MemoryNodes != "" {
		values = append(values, value{"memory nodes", s.MemoryNodes, cpuList})
		nodes = "AllowedMemoryNodes=" + s.MemoryNodes + "\n"
	}
	var devices strings.Builder
	for _, n := range s.Nodes {
		values = append(values, value{"device node", n, absolutePath})
		fmt.Fprintf(&devices, "DeviceAllow=%s rw\n", n)
	}
	return fill("node/slot.slice", "a slot's slice", values, "@SLOT@", s.Slot, "@GPUTYPE@", s.GPUType, "@CPUS@", s.CPUs, "@NODES@", nodes,
		"@MEMORY@", strconv.FormatInt(s.MemoryBytes, 10), "@PIDS@", strconv.Itoa(s.Pids), "@DEVICES@\n", devices.String())
}
