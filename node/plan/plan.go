// Package plan turns what a machine is, a vendor's queue file and the table of
// GPU types into what the machine should have: slots, and the files, users and
// units that keep them apart. It is pure: it reads no file, no clock and no
// environment, and changes nothing.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/limits"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

// A Row is what the table of GPU types says of one.
type Row struct {
	Name     string // "H100_BK"
	Vendor   string // of the GPU: "nvidia", "amd", "google", "none"
	Slice    string // the part of a GPU that a job gets; "" is whole GPUs
	Platform string // "docker" or "host"
	Queue    string
	Image    string // docker: what its steps name

	GPUs, CPUs, MemoryGiB int // promised to one job

	Timeout  time.Duration
	Commands []string // host: what its steps may run, each whole
}

// What runs a job.
const (
	Docker = "docker"
	Host   = "host"
)

// An Input is all that a plan depends on.
type Input struct {
	Facts *facts.Facts
	// File is free of errors, by itself and against the table.
	File *queuefile.File
	Node string         // which of the file's nodes this machine is
	Path string         // of the file, absolute
	Rows map[string]Row // by GPU type

	Endpoint string // of the agent API; empty: Buildkite's
	// ProgramFrom is the kbnode that is installed, with its hash; empty: it is there.
	ProgramFrom, ProgramSHA256 string
	// Release is kbnode's version. Proxies run on with the program that they were
	// started from: another release has all agents start again.
	Release string
	// AgentFrom is a buildkite-agent to install where the machine has none, of this
	// version and hash.
	AgentFrom, AgentSHA256, AgentVersion string
	VerificationJWKS                     string // a file of public keys; steps must be signed with one of them
	AllowSmall                           bool   // a machine that keeps no row's promise, as in tests
}

// Defaults of an [Input].
const (
	Program = "/usr/bin/kbnode" // where kbnode is
	jobPids = 4096              // processes and threads of a job

	// agentPath is where a given agent is installed.
	agentPath = "/usr/local/bin/buildkite-agent"
)

// firstPort is that of the first slot's agent, on loopback.
const firstPort = 39300

// A Plan is what a machine should have.
type Plan struct {
	Config node.Config
	Set    resource.Set
	// Notes say what is odd and goes on nevertheless.
	Notes []string
	// Missing is what the machine must have first.
	Missing []Missing
}

// A Missing is something that kbnode does not make.
type Missing struct {
	What    string `json:"what"`
	Why     string `json:"why"`
	Command string `json:"command"` // mends it
	Package bool   `json:"package"` // Command installs packages of the distribution
}

// A maker makes one plan.
type maker struct {
	Input
	plan  *Plan
	slots []*slot
	errs  []error
}

// A slot is one while it is planned.
type slot struct {
	node.Slot
	row   Row
	agent queuefile.Agent
	share queuefile.Share
	numa  int // of its devices; -1: any
}

// Make plans a node.
//
// Errors: all that is wrong, joined, one line each.
func Make(in Input) (*Plan, error) {
	m := &maker{Input: in, plan: &Plan{}}
	m.system()
	m.makeSlots()
	m.devices()
	m.cores()
	m.memory()
	m.promises()
	m.engine()
	m.findAgent()
	if len(m.errs) > 0 {
		return nil, errors.Join(m.errs...)
	}
	m.config()
	if err := m.resources(); err != nil {
		return nil, err
	}
	return m.plan, nil
}

func (m *maker) wrong(format string, args ...any) {
	m.errs = append(m.errs, fmt.Errorf(format, args...))
}

func (m *maker) note(format string, args ...any) {
	m.plan.Notes = append(m.plan.Notes, fmt.Sprintf(format, args...))
}

func (m *maker) missing(x Missing) { m.plan.Missing = append(m.plan.Missing, x) }

// leastSystemd has ProtectProc=.
const leastSystemd = 247

func (m *maker) system() {
	f := m.Facts
	if f.Systemd < leastSystemd {
		m.wrong("systemd: got %d, want %d or later: it sets up slices and tokens", f.Systemd, leastSystemd)
	}
	if f.Cgroup.Version != 2 {
		m.wrong("control groups: got version %d, want 2: boot with systemd.unified_cgroup_hierarchy=1", f.Cgroup.Version)
	}
	for _, c := range []string{"cpuset", "memory", "pids"} {
		if f.Cgroup.Version == 2 && !slices.Contains(f.Cgroup.Controllers, c) {
			m.wrong("control groups: got the controllers %s, want %s as well", strings.Join(f.Cgroup.Controllers, ", "), c)
		}
	}
	if len(f.Tools) > 0 && f.Tools["mkfs.ext4"] == "" { // facts of files alone have no tools
		m.missing(m.packages("mkfs.ext4", "it makes the slots' disks", "e2fsprogs"))
	}
	if i := slices.IndexFunc(f.Seeds, func(file string) bool { return strings.HasPrefix(file, node.UnitDir) }); i >= 0 {
		m.note("an older set-up is there, %s: kbnode adopt takes it over", f.Seeds[i])
	}
}

// makeSlots makes a slot for each agent that the file promises for this node.
func (m *maker) makeSlots() {
	gpus, cpus := 0, 0
	for _, a := range m.File.Agents() {
		if a.Node != m.Node {
			continue
		}
		row, ok := m.Rows[a.GPUType]
		switch {
		case !ok:
			m.wrong("%s: GPU type %q is not in kbgen's table", a.Path, a.GPUType)
			continue
		case row.Platform != Docker && row.Platform != Host:
			m.wrong("%s: GPU type %s runs on %s, want docker or host: kbnode sets up machines", a.Path, row.Name, row.Platform)
			continue
		}
		s := &slot{row: row, agent: a, share: a.Share, numa: -1}
		if row.GPUs > 0 {
			s.Name = fmt.Sprintf("gpu%d", gpus)
			gpus++
		} else {
			s.Name = fmt.Sprintf("cpu%d", cpus)
			cpus++
		}
		m.fill(s)
		m.slots = append(m.slots, s)
	}
	if len(m.slots) == 0 && len(m.errs) == 0 {
		m.wrong("node %q: got no agent in the queue file, want at least one", m.Node)
	}
}

// fill sets what follows from row and file alone.
func (m *maker) fill(s *slot) {
	s.User = "kbagent-" + s.Name
	s.Queue, s.Tags, s.GPUType, s.Platform = s.agent.Queue, s.agent.Tags, s.row.Name, s.row.Platform
	limits.Set(&s.Slot, s.share.MemoryGiB, s.share.DiskGB, jobPids)
	s.Timeout = s.row.Timeout
	s.HealthPort = firstPort + len(m.slots)
	switch {
	case s.Platform == Host:
		s.Commands = s.row.Commands
	case s.row.Image == "":
		m.wrong("%s: GPU type %s names no image", s.agent.Path, s.row.Name)
	default:
		s.Images, s.JobUser = []string{s.row.Image}, "kbjob-"+s.Name
	}
}

// promises compares each slot with what its row promises to submitters.
func (m *maker) promises() {
	for _, s := range m.slots {
		for _, p := range []struct {
			what      string
			got, want int
		}{{"CPUs", s.share.CPUs, s.row.CPUs}, {"GiB of memory", s.share.MemoryGiB, s.row.MemoryGiB}} {
			switch {
			case p.got <= 0:
				m.wrong("%s: got %d %s, want at least 1", s.Name, p.got, p.what)
			case p.got >= p.want:
			case m.AllowSmall:
				m.note("%s: %d %s, where %s promises %d to its jobs", s.Name, p.got, p.what, s.row.Name, p.want)
			default:
				m.wrong("%s: got %d %s, want at least %d, which %s promises to its jobs", s.Name, p.got, p.what, p.want, s.row.Name)
			}
		}
	}
}

// config is what stays on the machine.
func (m *maker) config() {
	c := &m.plan.Config
	c.Version, c.Node, c.Vendor, c.Endpoint, c.Program = node.Version, m.Node, m.File.Vendor, m.Endpoint, Program
	c.QueueFile, c.VerificationJWKS, c.AllowSmall = m.Path, m.VerificationJWKS, m.AllowSmall
	c.Digests, c.AllowTags = m.File.Digests(), m.File.AllowTags
	c.Agent = m.agent()
	if d := m.Facts.Docker; d != nil && m.any(Docker) {
		c.Docker = node.Docker{Socket: cmp.Or(d.Socket, "/run/docker.sock"), CLI: d.CLI}
	}
	for _, s := range m.slots {
		c.Slots = append(c.Slots, &s.Slot)
	}
	m.images()
}

// images notes which images kbnode image update would refuse to pull.
func (m *maker) images() {
	noted := map[string]bool{}
	for _, s := range m.slots {
		for _, ref := range s.Images {
			if noted[ref] || m.File.AllowTags || m.plan.Config.Digests[ref] != "" || strings.Contains(ref, "@") {
				continue
			}
			noted[ref] = true
			m.note("image %s has no digest in the queue file, so kbnode image update will refuse to pull it: add the digest under images, or set allow_tags: true", ref)
		}
	}
}

// any reports whether some slot is of a platform.
func (m *maker) any(platform string) bool {
	return slices.ContainsFunc(m.slots, func(s *slot) bool { return s.Platform == platform })
}
