package doctor

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gpu-mode/kbgen/schema/text"
)

// An advisory describes a vulnerability of a component that lets a job or a local user
// break kbnode's isolation, and the releases that fix it.
type advisory struct {
	component string
	cve       string
	allows    string
	fixed     []series // oldest first
}

// A series is a line of releases, "1.2", and the first in it that is safe. An older
// line that is not listed has no safe release; a newer one has only safe ones.
type series struct{ name, least string }

// advisories lists the known vulnerabilities that doctor looks for.
//
// Sources: the vendors' advisories for each CVE. runc: GHSA-xr7r-f8xq-vfvv,
// GHSA-9493-h29p-rfm2, GHSA-qw9x-cqr3-wc7r, GHSA-cgrx-mc8f-2prm. docker:
// GHSA-v23v-6jw2-98fq. containerd: GHSA-pwhc-rpq9-4c8w, GHSA-m6hq-p25p-ffr2. NVIDIA:
// security bulletins of September 2024 and July 2025 (container toolkit) and of
// October 2025 (GPU display driver). Linux: CVE-2024-1086 in kernel.org's list.
var advisories = []advisory{
	{"docker", "CVE-2024-41110", "a request can pass the engine's authorization plugins unchecked",
		[]series{{"25.0", "25.0.6"}, {"26.1", "26.1.5"}, {"27.1", "27.1.1"}}},
	{"containerd", "CVE-2024-25621", "local users reach containerd's directories",
		[]series{{"1.7", "1.7.29"}, {"2.0", "2.0.7"}, {"2.1", "2.1.5"}, {"2.2", "2.2.0"}}},
	{"containerd", "CVE-2025-64329", "repeated attach requests use up the machine's memory",
		[]series{{"1.7", "1.7.29"}, {"2.0", "2.0.7"}, {"2.1", "2.1.5"}, {"2.2", "2.2.0"}}},
	{"runc", "CVE-2024-21626", "a container reaches the machine's files through an open directory",
		[]series{{"1.1", "1.1.12"}}},
	{"runc", "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881", "a container writes to the machine's /proc and so leaves its isolation",
		[]series{{"1.2", "1.2.8"}, {"1.3", "1.3.3"}, {"1.4", "1.4.0"}}},
	{"toolkit", "CVE-2024-0132", "an image reaches the machine's files, unless devices are given by CDI",
		[]series{{"1.16", "1.16.2"}}},
	{"toolkit", "CVE-2025-23266", "an image runs code as root on the machine when its container starts",
		[]series{{"1.17", "1.17.8"}}},
	{"driver", "CVE-2025-23280, CVE-2025-23282", "a job gains the driver's privileges by freed memory or a race in it",
		[]series{{"535", "535.274.02"}, {"570", "570.195.03"}, {"580", "580.95.05"}}},
	{"kernel", "CVE-2024-1086", "a local user becomes root through nf_tables",
		[]series{{"5.10", "5.10.210"}, {"5.15", "5.15.149"}, {"6.1", "6.1.76"}, {"6.6", "6.6.15"}, {"6.7", "6.7.3"}}},
}

// fixFor returns the release that v must be upgraded to, or "" if v has the fix.
func (a *advisory) fixFor(v version) string {
	for _, s := range a.fixed {
		name := numbers(s.name)
		if slices.Compare(v.numbers[:min(len(name), len(v.numbers))], name) > 0 {
			continue
		}
		if v.before(s.least) {
			return s.least
		}
		return ""
	}
	return ""
}

// A build is the version of a component that a machine has.
type build struct {
	name     string // for people
	version  version
	packaged bool   // by a distribution, which may have added fixes to it
	upgrade  string // what brings a newer one
}

// versions returns the check of a component. found returns what the machine has; it
// reports the reason itself if it returns nil.
func versions(component string, found func(*run) *build) func(*run) {
	return func(r *run) {
		b := found(r)
		if b == nil {
			return
		}
		safe := true
		for _, a := range advisories {
			least := a.fixFor(b.version)
			switch {
			case a.component != component || least == "":
				continue
			case b.packaged:
				r.warn(b.upgrade, "%s %s may have %s: %s; fixed in %s, which distributions also backport: see the package's changelog", b.name, b.version, a.cve, a.allows, least)
			default:
				r.fail(b.upgrade, "%s %s has %s: %s; want %s or later", b.name, b.version, a.cve, a.allows, least)
			}
			safe = false
		}
		if safe {
			r.report(OK, "", "%s %s", b.name, b.version)
		}
	}
}

// upstreamCommit is how releases of docker, containerd and runc name their commit.
// Builds of distributions name none, or the version of their package.
var upstreamCommit = text.Pattern(`(^|-g)[0-9a-f]{7,40}$`)

// A part is one of the engine's.
type part struct {
	Name, Version string
	Details       struct{ GitCommit string }
}

// components asks the engine for its parts, once.
func (r *run) components() ([]part, error) {
	if r.parts == nil {
		r.parts = sync.OnceValues(func() ([]part, error) {
			var answer struct{ Components []part }
			err := r.ask("/version", nil, &answer)
			return answer.Components, err
		})
	}
	return r.parts()
}

// component returns a part of the engine, which knows the versions of all parts.
func component(name, label string) func(*run) *build {
	return func(r *run) *build {
		if !r.c.UsesDocker() {
			return nil
		}
		parts, err := r.components()
		if err != nil {
			r.skip("%v", err)
			return nil
		}
		for _, part := range parts {
			if part.Name != name {
				continue
			}
			v, ok := readVersion(part.Version)
			if !ok {
				r.skip("the engine says %q of its %s", text.Line(part.Version, 100), label)
				return nil
			}
			packaged := !upstreamCommit().MatchString(part.Details.GitCommit) || v.rest != "" && !v.preRelease()
			upgrade := "upgrade docker: apt-get install docker-ce containerd.io, or dnf upgrade docker-ce containerd.io"
			if packaged {
				upgrade = "upgrade docker: apt-get install docker.io containerd runc, or dnf upgrade"
			}
			return &build{label, v, packaged, upgrade}
		}
		r.skip("the engine does not name its %s", label)
		return nil
	}
}

func toolkitVersion(r *run) *build {
	if !r.c.HasVendor("nvidia") {
		return nil
	}
	ctk, ok := r.m.Look("nvidia-ctk")
	if !ok {
		r.skip("no nvidia-ctk: kbnode names the devices of containers itself")
		return nil
	}
	out, err := r.program(ctk, "--version")
	v, ok := readVersion(out)
	if err != nil || !ok {
		r.skip("nvidia-ctk --version printed %q (%v)", text.Line(out, 100), err)
		return nil
	}
	return &build{"NVIDIA's container toolkit", v, false, "upgrade the toolkit: apt-get install nvidia-container-toolkit, or dnf upgrade nvidia-container-toolkit"}
}

func driverVersion(r *run) *build {
	if !r.c.HasVendor("nvidia") {
		return nil
	}
	v, ok := readVersion(r.read("/proc/driver/nvidia/version"))
	if !ok {
		r.skip("/proc/driver/nvidia/version names no version")
		return nil
	}
	return &build{"NVIDIA's driver", v, false, "upgrade NVIDIA's driver by the way that it was installed, and reboot"}
}

// kernelVersion returns the running kernel's version. The release name of a Debian
// kernel has no patch level, so it reads the text of the build first.
func kernelVersion(r *run) *build {
	_, debian, _ := strings.Cut(r.read("/proc/sys/kernel/version"), "Debian ")
	v, ok := readVersion(debian)
	if !ok {
		v, ok = readVersion(r.read("/proc/sys/kernel/osrelease"))
	}
	if !ok {
		r.skip("/proc/sys/kernel/osrelease names no version")
		return nil
	}
	return &build{"Linux", v, true, "upgrade the kernel (apt-get dist-upgrade, or dnf upgrade kernel), and reboot"}
}

// A version is one that a program or package reports of itself: its numbers, and the
// rest of the word, such as "-rc.1" or "+ds1".
type version struct {
	text    string
	numbers []int
	rest    string
}

func (v version) String() string { return v.text }

var versionText = text.Pattern(`([0-9]+(?:\.[0-9]+)+)(\S*)`)

// readVersion returns the first version in a text.
func readVersion(s string) (v version, ok bool) {
	m := versionText().FindStringSubmatch(s)
	if m == nil {
		return v, false
	}
	return version{m[0], numbers(m[1]), m[2]}, true
}

// numbers reads digits with dots between them.
func numbers(dotted string) []int {
	var all []int
	for part := range strings.SplitSeq(dotted, ".") {
		n, _ := strconv.Atoi(part) // too large a number counts as the largest
		all = append(all, n)
	}
	return all
}

var preRelease = text.Pattern(`^[-~](rc|alpha|beta)`)

func (v version) preRelease() bool { return preRelease().MatchString(v.rest) }

// before reports whether v is older than a release, "1.2.8". A pre-release is older
// than its release.
func (v version) before(release string) bool {
	want, _ := readVersion(release)
	c := slices.Compare(v.numbers, want.numbers)
	return c < 0 || c == 0 && v.preRelease()
}
