package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A family is how distributions that are alike install packages.
type family struct {
	names   []string // IDs of /etc/os-release, also as ID_LIKE
	install string   // with the packages behind it
	docker  string   // installs the newest engine from docker's own repository; %s is the ID
}

// families are asked in this order: Ubuntu is like Debian, but has another URL.
var families = []family{
	{[]string{"debian", "ubuntu"}, "apt-get install --yes", "install -m 0755 -d /etc/apt/keyrings && " +
		"curl -fsSL https://download.docker.com/linux/%[1]s/gpg -o /etc/apt/keyrings/docker.asc && " +
		`echo "deb [signed-by=/etc/apt/keyrings/docker.asc] https://download.docker.com/linux/%[1]s $(. /etc/os-release; echo $VERSION_CODENAME) stable" > /etc/apt/sources.list.d/docker.list && ` +
		"apt-get update && apt-get install --yes docker-ce docker-ce-cli containerd.io"},
	{[]string{"rhel", "centos", "fedora"}, "dnf install --assumeyes", "dnf config-manager --add-repo https://download.docker.com/linux/%[1]s/docker-ce.repo && " +
		"dnf install --assumeyes docker-ce docker-ce-cli containerd.io && systemctl enable --now docker.service"},
}

// family is the distribution's, nil for one that is not in the table.
func (m *maker) family() *family {
	d := m.Facts.Distribution
	for i := range families {
		if slices.ContainsFunc(append([]string{d.ID}, d.Like...), func(id string) bool { return slices.Contains(families[i].names, id) }) {
			return &families[i]
		}
	}
	return nil
}

// packages is what is missing and comes with the distribution.
func (m *maker) packages(what, why string, names ...string) Missing {
	f := m.family()
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
	x := Missing{What: "docker 25 or newer"}
	f := m.family()
	if f == nil {
		x.Command = "install docker 25 or newer: https://docs.docker.com/engine/install/"
		return x
	}
	x.Command, x.Package = fmt.Sprintf(f.docker, m.dockerName()), true
	return x
}

// dockerName is what docker's repository calls the distribution.
func (m *maker) dockerName() string {
	d := m.Facts.Distribution
	for _, id := range []string{"debian", "ubuntu", "rhel", "fedora", "centos"} {
		if d.ID == id {
			return id
		}
	}
	if slices.Contains(d.Like, "ubuntu") {
		return "ubuntu"
	}
	if slices.Contains(d.Like, "debian") {
		return "debian"
	}
	return "centos"
}
