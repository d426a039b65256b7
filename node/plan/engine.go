package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/resource"
)

// firstCDI is the first engine that has CDI; from 28.2 on it is on by default.
const firstCDI = 25

const cdiKind = "nvidia.com/gpu"

// engine looks at docker, and at how containers get NVIDIA's devices. AMD's are
// given as device nodes and need nothing.
func (m *maker) engine() {
	if !m.any(Docker) {
		return
	}
	d := m.Facts.Docker
	if d == nil {
		m.missing(m.dockerPackage("jobs run in containers"))
		d = &facts.Docker{}
	} else if d.Version == "" {
		m.missing(Missing{What: "a running docker engine", Why: "docker info gives no answer", Command: "systemctl start docker.service"})
	}
	if d.CgroupDriver != "" && d.CgroupDriver != "systemd" {
		m.missing(Missing{
			What: "docker's systemd cgroup driver", Why: "with " + d.CgroupDriver + " no container can be put into a slice",
			Command: `put "exec-opts": ["native.cgroupdriver=systemd"] into ` + node.DaemonJSON + " and restart docker",
		})
	}
	if slices.ContainsFunc(m.slots, func(s *slot) bool { return s.usesCDI() }) {
		m.cdi(d)
	}
}

func (s *slot) usesCDI() bool {
	return s.Platform == Docker && slices.ContainsFunc(s.Devices, func(d node.Device) bool { return d.Vendor == facts.NVIDIA })
}

// cdi names the devices of slots, and sees to it that the names mean something.
func (m *maker) cdi(engine *facts.Docker) {
	if engine.Version != "" && major(engine.Version) < firstCDI {
		x := m.newerDocker()
		x.Why = fmt.Sprintf("version %s cannot give a container one GPU by its UUID (CDI)", engine.Version)
		m.missing(x)
	}
	var unnamed []string
	for _, s := range m.slots {
		if !s.usesCDI() {
			continue
		}
		for i := range s.Devices {
			d := &s.Devices[i]
			d.CDI = cdiKind + "=" + d.UUID
			if !m.named(d.UUID) {
				unnamed = append(unnamed, d.UUID)
			}
		}
	}
	_, tool := m.Facts.Tools["nvidia-ctk"]
	switch {
	case len(unnamed) == 0:
	case tool:
		m.missing(Missing{
			What: "a CDI spec that names GPUs by UUID", Why: "no file in /etc/cdi or /var/run/cdi has " + unnamed[0],
			Command: "nvidia-ctk cdi generate --device-name-strategy=uuid --output=" + node.CDIDir + "/nvidia.yaml",
		})
	case len(m.Facts.Libraries) == 0:
		m.missing(Missing{
			What: "NVIDIA's libraries", Why: "the loader's cache has no libcuda.so.1 for containers to use",
			Command: "install the driver's libraries, then run ldconfig",
		})
	default:
		m.note("there is no nvidia-ctk: the devices of containers are named in %s", node.CDISpec)
		m.plan.Set.Files = append(m.plan.Set.Files, file(node.CDISpec, 0o644, m.spec()))
	}
}

// named reports whether a spec that is not kbnode's names a device.
func (m *maker) named(uuid string) bool {
	return slices.ContainsFunc(m.Facts.CDI, func(s facts.CDISpec) bool {
		return s.Kind == cdiKind && s.Path != node.CDISpec && slices.Contains(s.Devices, uuid)
	})
}

// major is the number that a version begins with, 0 for none.
func major(version string) int {
	first, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	n, _ := strconv.Atoi(first)
	return n
}

// daemonJSON switches CDI on where the engine has it and keeps it off. A file in
// which it is on stays part of the plan.
func (m *maker) daemonJSON() error {
	d := m.Facts.Docker
	if d == nil || !slices.ContainsFunc(m.slots, (*slot).usesCDI) {
		return nil
	}
	content := []byte(d.DaemonJSON)
	current, err := resource.CDI(content)
	if err != nil {
		return fmt.Errorf("%s: %w", node.DaemonJSON, err)
	}
	if string(current) != "true" {
		if d.Version == "" || major(d.Version) < firstCDI || len(d.CDIDirs) > 0 {
			return nil
		}
		if content, err = resource.SetCDI(content, json.RawMessage("true")); err != nil {
			return err
		}
		m.note("docker's CDI is off: it is switched on in %s, for which docker restarts%s", node.DaemonJSON, m.restartCost())
	}
	m.plan.Set.Files = append(m.plan.Set.Files, resource.File{
		Path: node.DaemonJSON, Mode: 0o644, Owner: "root", Group: "root", Content: content, Foreign: true,
	})
	return nil
}

// restartCost says what a restart of the engine does to containers.
func (m *maker) restartCost() string {
	switch d := m.Facts.Docker; {
	case d.LiveRestore:
		return "; live-restore keeps containers running"
	case d.Running > 0:
		return fmt.Sprintf(" and stops %d containers", d.Running)
	}
	return ""
}

// findAgent sees whether the machine has an agent that kbnode can set up.
func (m *maker) findAgent() {
	a := m.agent()
	switch {
	case m.Facts.Agent == nil && m.AgentFrom == "":
		m.missing(m.packages("buildkite-agent", "it takes the jobs; its package is in Buildkite's repository, or name a file with --agent", "buildkite-agent"))
	case major(a.Version) == 0:
		m.wrong("%s: it does not say its version; want %s", a.Path, node.AgentVersions)
	case !node.SupportsAgent(a.Version):
		m.wrong("%s: got version %s, want %s", a.Path, a.Version, node.AgentVersions)
	}
	if m.Facts.Agent != nil && m.AgentFrom != "" && m.Facts.Agent.Path != agentPath {
		m.note("%s is there and is used; the given one is not installed", m.Facts.Agent.Path)
	}
	if m.any(Host) && m.Facts.Tools["kbrun"] == "" {
		m.note("there is no kbrun on PATH, which slots without containers start for each job")
	}
}

// agent is the one that the slots run.
func (m *maker) agent() node.Agent {
	switch a := m.Facts.Agent; {
	case a != nil && (m.AgentFrom == "" || a.Path != agentPath):
		return node.Agent{Path: a.Path, Version: a.Version}
	case m.AgentFrom != "":
		return node.Agent{Path: agentPath, Version: m.AgentVersion}
	}
	return node.Agent{Path: "/usr/bin/buildkite-agent"}
}

// A family is how distributions that are alike install packages.
type family struct {
	install string // with the packages behind it
	docker  string // installs the newest engine from docker's own repository; %s is the repository's name
}

var (
	apt = &family{"apt-get install --yes", "install -m 0755 -d /etc/apt/keyrings && " +
		"curl -fsSL https://download.docker.com/linux/%[1]s/gpg -o /etc/apt/keyrings/docker.asc && " +
		`echo "deb [signed-by=/etc/apt/keyrings/docker.asc] https://download.docker.com/linux/%[1]s $(. /etc/os-release; echo $VERSION_CODENAME) stable" > /etc/apt/sources.list.d/docker.list && ` +
		"apt-get update && apt-get install --yes docker-ce docker-ce-cli containerd.io"}
	dnf = &family{"dnf install --assumeyes", "dnf config-manager --add-repo https://download.docker.com/linux/%[1]s/docker-ce.repo && " +
		"dnf install --assumeyes docker-ce docker-ce-cli containerd.io && systemctl enable --now docker.service"}
	families = map[string]*family{"debian": apt, "ubuntu": apt, "rhel": dnf, "fedora": dnf, "centos": dnf} // by ID of /etc/os-release
)

// family is the distribution's, and what docker's repository calls it. It is nil for
// a distribution that is not known, nor like one that is.
func (m *maker) family() (f *family, repository string) {
	d := m.Facts.Distribution
	like := func(id string) bool { return slices.Contains(d.Like, id) }
	switch {
	case families[d.ID] != nil:
		return families[d.ID], d.ID
	case like("ubuntu"): // which is like Debian, but has another repository
		return apt, "ubuntu"
	case like("debian"):
		return apt, "debian"
	case like("rhel"), like("centos"), like("fedora"):
		return dnf, "centos"
	}
	return nil, ""
}

// packages is what is missing and comes with the distribution.
func (m *maker) packages(what, why string, names ...string) Missing {
	f, _ := m.family()
	if f == nil {
		return Missing{What: what, Why: why, Command: fmt.Sprintf("install %s: %s is a distribution that kbnode does not know", what, cmp.Or(m.Facts.Distribution.ID, "this"))}
	}
	return Missing{What: what, Why: why, Command: f.install + " " + strings.Join(names, " "), Package: true}
}

// dockerPackage is the distribution's engine where that has CDI, or is not asked
// for it.
func (m *maker) dockerPackage(why string) Missing {
	d := m.Facts.Distribution
	needs := slices.ContainsFunc(m.slots, (*slot).usesCDI)
	switch {
	case d.ID == "debian" && major(d.Version) >= 13:
		return m.packages("docker", why, "docker.io", "docker-cli")
	case d.ID == "debian" && !needs, d.ID == "ubuntu":
		return m.packages("docker", why, "docker.io")
	}
	x := m.newerDocker()
	x.What, x.Why = "docker", why
	return x
}

// newerDocker is the newest engine, of docker's own repository.
func (m *maker) newerDocker() Missing {
	const what = "docker 25 or newer"
	f, repository := m.family()
	if f == nil {
		return Missing{What: what, Command: "install docker 25 or newer: https://docs.docker.com/engine/install/"}
	}
	return Missing{What: what, Command: fmt.Sprintf(f.docker, repository), Package: true}
}
