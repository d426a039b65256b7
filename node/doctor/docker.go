package doctor

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/facts"
)

// info is what is asked of the engine.
type info struct {
	ServerVersion  string
	CgroupDriver   string
	CDISpecDirs    []string
	DefaultRuntime string
	DockerRootDir  string
	// SecurityOptions are "name=seccomp,profile=builtin", "name=apparmor" and the like.
	SecurityOptions []string
}

// dockerInfo asks the engine about itself, once. Zero when there is no answer, or
// no slot that needs one.
func (r *run) dockerInfo() info {
	if r.docker == nil {
		r.docker = &info{}
		if r.c.UsesDocker() {
			_ = r.ask("/info", nil, r.docker) // no answer is said by the check of the engine
		}
	}
	return *r.docker
}

// ask asks the engine for at most some seconds.
func (r *run) ask(path string, query url.Values, into any) error {
	ctx, cancel := context.WithTimeout(r.ctx, 10*time.Second)
	defer cancel()
	return r.m.Engine(ctx, r.c.Docker.Socket, path, query, into)
}

func (r *run) engine() {
	_, installed := r.m.Look("docker")
	switch {
	case !r.c.UsesDocker():
	case r.stat(r.c.Docker.Socket) == nil && !installed:
		r.fail("install docker: apt-get install docker.io, or docker-ce from https://docs.docker.com/engine/install/", "no docker on PATH: jobs with a GPU run in containers")
	case r.stat(r.c.Docker.Socket) == nil:
		// A socket that was removed is made again when both stop.
		r.fail("systemctl stop docker.service docker.socket; systemctl start docker", "no docker engine listens at %s", r.c.Docker.Socket)
	case r.dockerInfo().ServerVersion == "" && !r.m.Root0:
		r.skip("the engine cannot be asked without root")
	case r.dockerInfo().ServerVersion == "":
		r.fail("journalctl --no-pager -n 50 -u docker; systemctl restart docker", "the docker engine at %s does not answer; its restart ends containers unless live-restore is on", r.c.Docker.Socket)
	default:
		r.report(OK, "", "docker %s answers", r.dockerInfo().ServerVersion)
	}
}

func (r *run) engineSocket() {
	if !r.c.UsesDocker() {
		return
	}
	info, err := os.Stat(r.path(r.c.Docker.Socket))
	if err != nil {
		return // said by the check of the engine
	}
	if info.Mode().Perm()&0o006 != 0 {
		r.fail("chmod 0660 "+r.c.Docker.Socket, "%s has mode %04o, which makes every job on the host root; a SocketMode= in docker.socket would set that mode again", r.c.Docker.Socket, info.Mode().Perm())
	}
}

func (r *run) engineCgroup() {
	if !r.c.UsesDocker() {
		return
	}
	switch driver := r.dockerInfo().CgroupDriver; driver {
	case "systemd":
	case "":
		r.skip("the engine does not say")
	default:
		r.fail(`put "exec-opts": ["native.cgroupdriver=systemd"] into `+node.DaemonJSON+", then restart docker",
			"the engine's cgroup driver is %s, want systemd: it cannot put containers into slices", driver)
	}
}

// engineSecurity looks for the filters that the engine puts around each container.
//
// Source: moby, daemon/info.go, fillSecurityOptions.
func (r *run) engineSecurity() {
	info := r.dockerInfo()
	if info.ServerVersion == "" {
		if r.c.UsesDocker() {
			r.skip("the engine does not say")
		}
		return
	}
	option := func(name string) string {
		i := slices.IndexFunc(info.SecurityOptions, func(o string) bool { return o == "name="+name || strings.HasPrefix(o, "name="+name+",") })
		if i < 0 {
			return ""
		}
		return info.SecurityOptions[i]
	}
	if seccomp := option("seccomp"); seccomp == "" {
		r.fail("boot a kernel with CONFIG_SECCOMP_FILTER", "the engine has no seccomp: a job may make every system call")
	} else if strings.HasSuffix(seccomp, ",profile=unconfined") {
		r.fail(`take "seccomp-profile" out of `+node.DaemonJSON+", then restart docker", "the engine's seccomp profile is unconfined: a job may make every system call")
	}
	if option("apparmor") == "" && option("selinux") == "" {
		r.warn(`give it AppArmor (apt-get install apparmor, and boot with apparmor=1) or SELinux ("selinux-enabled": true in `+node.DaemonJSON+"), then restart docker",
			"the engine confines containers by neither AppArmor nor SELinux")
	}
}

// cdiNames returns the CDI names of the slots' devices.
func (r *run) cdiNames() []string {
	var names []string
	for _, s := range r.c.Slots {
		for _, d := range s.Devices {
			if d.CDI != "" && s.Platform == "docker" {
				names = append(names, d.CDI)
			}
		}
	}
	return names
}

func (r *run) engineCDI() {
	if len(r.cdiNames()) == 0 {
		return
	}
	switch info := r.dockerInfo(); {
	case info.ServerVersion == "":
		r.skip("the engine does not say")
	case len(info.CDISpecDirs) == 0 && lacksCDI(info.ServerVersion):
		r.fail("install docker-ce from docker's repository: kbnode plan FILE prints the commands", "docker %s gives no devices by name: want docker %s or later", info.ServerVersion, firstCDI)
	case len(info.CDISpecDirs) == 0:
		r.fail(r.apply("--allow-docker-restart"), `the engine gives no devices by name: want "features": {"cdi": true} in %s, or docker 28.2`, node.DaemonJSON)
	}
}

// firstCDI is the first engine that has CDI. It is on by default from 28.2.
const firstCDI = "25.0.0"

// lacksCDI reports whether an engine is too old for CDI.
func lacksCDI(engine string) bool {
	v, ok := readVersion(engine)
	return ok && v.before(firstCDI)
}

func (r *run) toolkit() {
	if runtime := r.dockerInfo().DefaultRuntime; strings.Contains(runtime, "nvidia") {
		r.fail(`take "default-runtime" out of `+node.DaemonJSON+", then restart docker",
			"the engine's default runtime is %s: an image's NVIDIA_VISIBLE_DEVICES then picks GPUs, and collides with CDI", runtime)
	}
}

// cdiDevices looks for each device's name in the specs on disk. Of a name in both of
// the engine's directories, the one in the later directory counts; of a name twice in
// one, none does.
//
// Source: the CDI specification, "CDI JSON Specification", and
// cncf-tags/container-device-interface, pkg/cdi/cache.go.
func (r *run) cdiDevices() {
	if len(r.cdiNames()) == 0 {
		return
	}
	have := map[string][]string{} // the files, by device
	for _, spec := range facts.CDISpecs(r.m.Root, func(file string, err error) {
		r.fail("remove it, or write it again with the tool that made it (NVIDIA's: nvidia-ctk cdi generate --output="+file+")", "%s is not a CDI spec: %v", file, err)
	}) {
		for _, d := range spec.Devices {
			have[spec.Kind+"="+d] = append(have[spec.Kind+"="+d], spec.Path)
		}
	}
	for _, want := range r.cdiNames() {
		if slices.ContainsFunc(have[want], func(file string) bool {
			return slices.ContainsFunc(have[want], func(other string) bool { return other != file && filepath.Dir(other) == filepath.Dir(file) })
		}) {
			mend := "remove one of them"
			if slices.Contains(have[want], node.CDISpec) { // which is wanted only if no other names the devices
				mend = r.apply()
			}
			r.fail(mend, "%s name %s: the engine ignores a device that two specs in one directory name, so containers that need it do not start", strings.Join(have[want], " and "), want)
		}
		if len(have[want]) == 0 {
			mend := r.apply() // which writes a spec where there is no nvidia-ctk
			if _, ok := r.m.Look("nvidia-ctk"); ok {
				mend = "nvidia-ctk cdi generate --device-name-strategy=uuid --output=" + node.CDIDir + "/nvidia.yaml"
			}
			r.fail(mend, "no CDI spec names %s: containers with it do not start", want)
		}
	}
}

func (r *run) driver() {
	if r.c.HasVendor("amd") && r.stat("/dev/kfd") == nil {
		r.fail("modprobe amdgpu; dmesg | grep amdgpu", "no /dev/kfd: AMD's driver is not loaded")
	}
	if !r.c.HasVendor("nvidia") {
		return
	}
	if r.stat("/proc/driver/nvidia/version") == nil {
		r.fail("install NVIDIA's driver, or load it if modinfo nvidia finds it: modprobe nvidia", "no /proc/driver/nvidia/version: NVIDIA's driver is not loaded")
		return
	}
	smi, ok := r.m.Look("nvidia-smi")
	if !ok {
		r.warn("install the driver's package with nvidia-smi: nvidia-smi on Debian, nvidia-utils-VERSION on Ubuntu", "no nvidia-smi: the GPUs' health cannot be asked")
		return
	}
	// Plain nvidia-smi exits 0 with errors in its table: ask for a field.
	out, err := r.program(smi, "--query-gpu=uuid", "--format=csv,noheader")
	switch {
	case strings.Contains(out, "mismatch"): // driver and library of different versions, after an upgrade without a reboot
		r.fail("reboot", "nvidia-smi: %s", out)
	case err != nil:
		r.fail("dmesg | grep -i nvrm; reboot", "nvidia-smi: %v", err)
	}
}

func (r *run) nouveau() {
	if r.c.HasVendor("nvidia") && r.stat("/sys/module/nouveau") != nil {
		r.fail("put blacklist nouveau into /etc/modprobe.d/nouveau.conf, make the initramfs again (update-initramfs -u, or dracut -f), and reboot", "the kernel has loaded nouveau, which takes NVIDIA's GPUs")
	}
}

// gpuMemory says what isolates GPU memory between jobs. The driver is expected to clear
// memory before it gives it to another process, and nothing that kbnode can ask proves
// it.
func (r *run) gpuMemory() {
	var unisolated []string
	for _, s := range r.c.Slots {
		if slices.ContainsFunc(s.Devices, func(d node.Device) bool { return d.Vendor == facts.NVIDIA && !strings.HasPrefix(d.UUID, "MIG-") }) {
			unisolated = append(unisolated, s.Name)
		}
	}
	if len(unisolated) == 0 {
		return
	}
	if out, err := r.program("nvidia-smi", "conf-compute", "-f"); err == nil && strings.Contains(out, "status: ON") {
		r.report(OK, "", "the GPUs run in confidential-computing mode")
		return
	}
	r.report(OK, "", "%s: residual GPU memory is not isolated between jobs; only MIG or confidential-computing mode isolates it", strings.Join(unisolated, ", "))
}
