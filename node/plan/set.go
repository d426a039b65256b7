package plan

import (
	"bytes"
	"cmp"
	"io/fs"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/limits"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/templates"
)

// cancelSecs is how long a cancelled job has to end by itself.
const cancelSecs = 10

// stopExtra is what agent and engine need once the longest job has ended.
const stopExtra = 2 * time.Minute

// file is one of kbnode's own.
func file(path string, mode fs.FileMode, content []byte) resource.File {
	return resource.File{Path: path, Mode: mode, Owner: "root", Group: "root", Content: content, Marked: true}
}

func (m *maker) add(path string, mode fs.FileMode, content string) {
	m.plan.Set.Files = append(m.plan.Set.Files, file(path, mode, []byte(content)))
}

func (m *maker) dir(path string, mode fs.FileMode, owner, group string) {
	m.plan.Set.Dirs = append(m.plan.Set.Dirs, resource.Dir{Path: path, Mode: mode, Owner: owner, Group: group})
}

func (m *maker) unit(u resource.Unit) { m.plan.Set.Units = append(m.plan.Set.Units, u) }

// resources makes the set from the config.
func (m *maker) resources() error {
	n := m.templates()
	m.programs()
	m.commonDirs()
	if err := m.sharedFiles(n); err != nil {
		return err
	}
	for _, s := range m.slots {
		if err := m.slotFiles(n, s); err != nil {
			return err
		}
	}
	if err := m.daemonJSON(); err != nil {
		return err
	}
	m.units(n)
	return nil
}

func (m *maker) templates() *templates.Node {
	longest := time.Duration(0)
	for _, s := range m.slots {
		longest = max(longest, s.Timeout)
	}
	return &templates.Node{
		Program: Program, Agent: m.plan.Config.Agent.Path, Systemd: m.Facts.Systemd,
		Stop: longest + stopExtra, Docker: m.any(Docker), Allow: m.allowed(),
	}
}

// allowed are the addresses that the facts and the endpoint name, which may lie in the
// vendor's network: name servers, and an agent API given by its address.
func (m *maker) allowed() []netip.Addr {
	var out []netip.Addr
	hosts := slices.Clone(m.Facts.NameServers)
	if u, err := url.Parse(m.Endpoint); err == nil {
		hosts = append(hosts, u.Hostname())
	}
	for _, host := range hosts {
		addr, err := netip.ParseAddr(host)
		if err == nil && !addr.IsLoopback() && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
		if err == nil && addr == metadata {
			m.note("the name server %s is the cloud's metadata service as well, so that agents can reach it: use systemd-resolved", addr)
		}
	}
	return out
}

// metadata is the address at which most clouds serve a machine's credentials.
var metadata = netip.MustParseAddr("169.254.169.254")

// programs are kbnode itself, and an agent where one was given.
func (m *maker) programs() {
	set := &m.plan.Set
	if m.ProgramFrom != "" {
		set.Copies = append(set.Copies, resource.Copy{Path: Program, From: m.ProgramFrom, SHA256: m.ProgramSHA256, Mode: 0o755})
	}
	if m.AgentFrom != "" && m.plan.Config.Agent.Path == agentPath {
		set.Copies = append(set.Copies, resource.Copy{Path: agentPath, From: m.AgentFrom, SHA256: m.AgentSHA256, Mode: 0o755})
	}
}

func (m *maker) commonDirs() {
	for _, d := range []string{"/etc/kbnode", node.HooksDir, "/var/lib/kbnode", node.SlotsDir, node.PausedDir, node.ProofsDir} {
		m.dir(d, 0o755, "root", "root")
	}
	m.dir(node.DisksDir, 0o700, "root", "root")
	m.dir(node.AuditDir, 0o700, "root", "root")
	if slices.ContainsFunc(m.plan.Set.Files, func(f resource.File) bool { return f.Path == node.CDISpec }) {
		m.dir(node.CDIDir, 0o755, "root", "root")
	}
	if m.any(Docker) {
		m.dir("/etc/docker", 0o755, "root", "root")
	}
}

// sharedFiles are those that all slots use.
func (m *maker) sharedFiles(n *templates.Node) error {
	var config bytes.Buffer
	enc := yaml.NewEncoder(&config)
	enc.SetIndent(2)
	if err := enc.Encode(m.plan.Config); err != nil {
		return err
	}
	release := ""
	if m.Release != "" { // no setting: an older program must be able to read the rest
		release = "# of kbnode " + strconv.Quote(m.Release) + "\n"
	}
	m.add(node.ConfigPath, 0o644, release+config.String())
	hooks, err := n.Hooks()
	if err != nil {
		return err
	}
	for _, h := range hooks {
		m.add(node.HooksDir+"/"+h.Name, 0o755, h.Content)
	}
	units, err := n.Units()
	if err != nil {
		return err
	}
	for _, u := range units {
		m.add(node.UnitDir+"/"+u.Name, 0o644, u.Content)
	}
	return nil
}

// slotFiles are one slot's own: its users, directories, limits and agent.
func (m *maker) slotFiles(n *templates.Node, s *slot) error {
	set := &m.plan.Set
	for _, name := range s.Users() {
		set.Users = append(set.Users, resource.User{Name: name, Home: "/nonexistent"})
	}
	m.dir("/etc/kbnode/"+s.Name, 0o755, "root", "root")
	m.dir(s.Dir(), 0o755, "root", "root")
	for _, d := range s.UserDirs() {
		m.dir(d, 0o700, s.User, s.User)
	}
	slice, err := limits.Unit(&s.Slot)
	if err != nil {
		return err
	}
	m.add(node.UnitDir+"/"+s.Slice(), 0o644, slice)
	disk, err := (&templates.NodeDisk{Slot: s.Name, Bytes: s.DiskBytes, Image: s.DiskImage(), Dir: s.Dir()}).Unit()
	if err != nil {
		return err
	}
	m.add(node.UnitDir+"/"+s.MountUnit(), 0o644, disk)
	config, err := (&templates.AgentConfig{
		Major: cmp.Or(major(m.agent().Version), 3), Name: m.Node + "-" + s.Name, Slot: s.Name, Tags: s.Tags, Endpoint: m.Endpoint, Program: Program,
		Docker: s.Platform == Docker, Plugin: schema.PluginSource + "#" + schema.PluginVersion,
		JWKS: m.VerificationJWKS, HealthPort: s.HealthPort, CancelSecs: cancelSecs,
	}).File()
	if err != nil {
		return err
	}
	m.add(s.AgentConfig(), 0o644, config)
	if s.Platform == Host {
		dropIn, err := n.HostDropIn(s.Groups)
		if err != nil {
			return err
		}
		m.dir(dropInDir(s), 0o755, "root", "root")
		m.add(dropInDir(s)+"/host.conf", 0o644, dropIn)
	}
	return nil
}

func dropInDir(s *slot) string { return node.UnitDir + "/" + s.Unit() + ".d" }

// units are in the order in which they start.
func (m *maker) units(n *templates.Node) {
	path := func(name string) string { return node.UnitDir + "/" + name }
	if n.Docker {
		u := resource.Unit{Name: "docker.service", Enabled: true, Active: true, Asks: true}
		if slices.ContainsFunc(m.plan.Set.Files, func(f resource.File) bool { return f.Path == node.DaemonJSON }) {
			u.Uses = []string{node.DaemonJSON}
		}
		m.unit(u)
	}
	m.unit(resource.Unit{Name: "kbnode-prepare.service", Enabled: true, Active: true})
	for _, s := range m.slots {
		m.unit(resource.Unit{Name: s.Slice(), Active: true}) // a restart would end what is in it: a reload is enough
	}
	for _, s := range m.slots {
		m.unit(resource.Unit{Name: s.MountUnit(), Active: true, Uses: []string{path(s.MountUnit())}})
		uses := []string{path("kbnode-agent@.service"), path(s.Slice()), path(s.MountUnit()), s.AgentConfig(), node.TokenPath, node.ConfigPath, m.plan.Config.Agent.Path}
		if s.Platform == Docker {
			socket := "kbnode-proxy@" + s.Name + ".socket"
			m.unit(resource.Unit{Name: socket, Enabled: true, Active: true, Uses: []string{path("kbnode-proxy@.socket")}})
			uses = append(uses, path("kbnode-proxy@.service"), Program)
		} else {
			uses = append(uses, dropInDir(s)+"/host.conf")
		}
		m.unit(resource.Unit{Name: s.Unit(), Enabled: true, Active: true, Uses: uses, Drain: true})
	}
	m.unit(resource.Unit{Name: "kbnode-agents.target", Enabled: true, Active: true})
	m.unit(resource.Unit{Name: "kbnode-check.timer", Enabled: true, Active: true, Uses: []string{path("kbnode-check.timer")}})
	if n.Docker {
		m.unit(resource.Unit{Name: "kbnode-image.timer", Enabled: true, Active: true, Uses: []string{path("kbnode-image.timer")}})
	}
}
