package doctor

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/facts"
)

// registry is where runner images come from.
const registry = "https://ghcr.io/v2/"

// bareChecks are the checks that [Preflight] makes and [Run] does not.
var bareChecks = []check[func(*run)]{
	{"distribution", true, (*run).distribution, ""},
	{"architecture", true, (*run).architecture, ""},
	{"gpu", true, (*run).gpus, ""},
	{"registry", true, (*run).registry, "the registry of the runner images can be reached, or no docker"},
}

// sharedCodes are those of the checks that Run makes as well.
var sharedCodes = []string{
	"root", "systemd", "cgroup", "swap", "yama", "disk", "docker", "docker-cgroup", "docker-security", "docker-cdi", "toolkit", "driver", "nouveau", "version-docker",
	"version-containerd", "version-runc", "version-toolkit", "version-driver", "version-kernel", "endpoint", "clock", "foreign-agents",
}

// Preflight checks a machine before it is set up, without a config. It is not the
// preflight of [Run], which comes before each start of an agent. Endpoint is the URL of
// the agent API; empty: Buildkite's.
//
// Errors: the context's.
func Preflight(ctx context.Context, m Machine, endpoint string) (*Diagnosis, error) {
	f, err := facts.Read(ctx, facts.Machine{Root: m.Root, Run: m.Run, Look: m.Look})
	if err != nil {
		return nil, err
	}
	// One slot stands for those that the machine may get.
	slot := &node.Slot{Platform: "host"}
	c := &node.Config{Node: f.Hostname, Endpoint: endpoint, Docker: node.Docker{Socket: "/run/docker.sock"}, Slots: []*node.Slot{slot}}
	r := &run{ctx: ctx, m: m, c: c, facts: f}
	for _, vendor := range r.vendors() {
		d := node.Device{Vendor: vendor}
		if vendor == facts.NVIDIA {
			d.CDI = "nvidia.com/gpu=all"
		}
		slot.Devices = append(slot.Devices, d)
	}
	if f.Docker != nil {
		c.Docker.Socket = cmp.Or(f.Docker.Socket, c.Docker.Socket)
	}
	if f.Docker != nil || len(slot.Devices) > 0 {
		slot.Platform = "docker"
	}
	shared := slices.DeleteFunc(slices.Clone(machineChecks), func(c check[func(*run)]) bool { return !slices.Contains(sharedCodes, c.code) })
	for _, check := range slices.Concat(bareChecks, shared) {
		r.check(check.code, check.shown, nil, func() { check.run(r) })
	}
	d := &Diagnosis{Node: c.Node, Checks: r.results}
	d.OK = d.Count(Failure) == 0
	return d, nil
}

// vendors returns the makers of the GPUs on the PCI bus, whose drivers may be
// missing, and of those that drivers show.
//
// Source: pci.ids; NVIDIA's are display and 3D controllers, AMD's for computing are
// other display controllers and accelerators.
func (r *run) vendors() []string {
	var all []string
	devices, _ := filepath.Glob(r.path("/sys/bus/pci/devices/*"))
	for _, dir := range devices {
		dir = "/sys/bus/pci/devices/" + filepath.Base(dir)
		vendor, class := r.read(dir+"/vendor"), r.read(dir+"/class")
		switch {
		case vendor == "0x10de" && (strings.HasPrefix(class, "0x0300") || strings.HasPrefix(class, "0x0302")):
			all = append(all, facts.NVIDIA)
		case vendor == "0x1002" && (strings.HasPrefix(class, "0x0380") || strings.HasPrefix(class, "0x1200")):
			all = append(all, facts.AMD)
		}
	}
	for _, g := range r.facts.GPUs {
		all = append(all, g.Vendor)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (r *run) distribution() {
	d := r.facts.Distribution
	if d.ID == "" {
		r.skip("/etc/os-release names no distribution")
		return
	}
	for _, id := range append([]string{d.ID}, d.Like...) {
		if slices.Contains([]string{"debian", "ubuntu", "rhel", "centos", "fedora"}, id) {
			r.report(OK, "", "%s %s", d.ID, d.Version)
			return
		}
	}
	r.warn("install docker and buildkite-agent before kbnode apply", "%s %s: kbnode does not know its packages", d.ID, d.Version)
}

func (r *run) architecture() {
	switch arch := r.facts.Arch; arch {
	case "x86_64", "aarch64":
		r.report(OK, "", "%s", arch)
	case "":
		r.skip("uname -m does not answer")
	default:
		r.fail("use a machine with x86_64 or aarch64", "%s, want x86_64 or aarch64: kbgen has no release for others", arch)
	}
}

func (r *run) gpus() {
	count := map[string]int{}
	for _, g := range r.facts.GPUs {
		count[cmp.Or(g.Name, g.Vendor)]++
	}
	var found []string
	for name, n := range count {
		found = append(found, fmt.Sprintf("%d x %s", n, name))
	}
	slices.Sort(found)
	switch vendors := r.vendors(); {
	case len(found) > 0:
		r.report(OK, "", "%s", strings.Join(found, ", "))
	case len(vendors) > 0:
		r.warn("install the driver, and run this again", "a GPU of %s, and no driver that shows it", strings.Join(vendors, " and "))
	default:
		r.warn("look for it in lspci, if there should be one", "no GPU: only rows of the table without one can run here")
	}
}

func (r *run) registry() {
	if !r.c.UsesDocker() {
		return
	}
	if _, _, err := r.m.Reach(r.ctx, registry); err != nil {
		r.fail("let this machine reach it (firewall, DNS): curl -v "+registry+" shows where the connection fails", "%s cannot be reached: %v; kbnode image update --local uses images that docker has", registry, err)
	}
}
