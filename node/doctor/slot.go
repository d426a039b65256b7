package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/cpulist"
	"github.com/gpu-mode/kbgen/node/health"
	"github.com/gpu-mode/kbgen/node/limits"
	"github.com/gpu-mode/kbgen/schema/text"
)

// slotChecks are those of each slot.
var slotChecks = []check[func(*run, *node.Slot)]{
	{"user", true, (*run).user, "has its users"},
	{"agent-group", false, (*run).agentGroup, "its user is in no group that rules the machine"},
	{"slot-disk", false, (*run).slotDisk, "its disk has a size of its own"},
	{"sandbox", false, (*run).sandbox, "systemd confines its agent and proxy as kbnode's units say"},
	{"directories", true, (*run).directories, "its directories are its user's alone"},
	{"paused", false, (*run).paused, "takes jobs"},
	{"slice", true, (*run).slice, "its slice is what was planned"},
	{"slice-limits", true, (*run).sliceLimits, "its limits are in force"},
	{"slice-devices", true, (*run).sliceDevices, "opens its own devices and no other's"},
	{"device", true, (*run).device, "its devices are in order"},
	{"proof", false, (*run).proof, ""},
	{"proxy", true, (*run).proxy, "its docker socket is its user's alone"},
	{"image", true, (*run).image, "its images are there"},
	{"leftovers", false, (*run).leftovers, "nothing is left of earlier jobs"},
	{"agent-unit", false, (*run).agentUnit, "its agent runs"},
	{"agent-health", false, (*run).agentHealth, "its agent is connected"},
}

func (r *run) user(s *node.Slot) {
	for _, name := range s.Users() {
		if _, err := r.m.User(name); err != nil {
			r.fail(r.apply(), "no user %s: %v", name, err)
		}
	}
}

func (r *run) directories(s *node.Slot) {
	u, err := r.m.User(s.User)
	if err != nil {
		return
	}
	r.rootsAlone(s.Dir())
	for _, dir := range s.UserDirs() {
		info := r.stat(dir)
		if info == nil || !info.IsDir() {
			r.fail(r.apply(), "no directory %s: the agent takes jobs and drops them", dir)
			continue
		}
		if uid, _ := r.m.Owner(info); uid != u.UID || info.Mode().Perm()&0o077 != 0 {
			r.fail(fmt.Sprintf("chown %s %s; chmod 0700 %s", s.User, dir, dir), "%s: owner %d, mode %04o; want owner %d, 0700", dir, uid, info.Mode().Perm(), u.UID)
		}
	}
}

// slotDisk checks that the slot's disk is mounted, which bounds what its jobs write.
func (r *run) slotDisk(s *node.Slot) {
	if u := r.unit(s.MountUnit(), "ActiveState"); u != nil && u["ActiveState"] != "active" {
		r.fail("systemctl start "+s.MountUnit(), "the slot's disk is not mounted on %s: jobs could fill the machine's", s.Dir())
	}
}

func (r *run) paused(s *node.Slot) {
	if r.stat(s.Paused()) != nil {
		r.warn("kbnode resume "+s.Name, "takes no jobs: %s", cmp.Or(text.Line(r.read(s.Paused()), 200), "no reason given"))
	}
}

// slice compares what systemd has with what was planned: a slice that nobody has
// written limits nothing, and systemd makes one for any name.
func (r *run) slice(s *node.Slot) {
	revert := r.revert(s)
	u := r.unit(s.Slice(), "FragmentPath", "MemoryMax", "TasksMax", "DevicePolicy", "AllowedCPUs", "NeedDaemonReload")
	switch {
	case u == nil:
	case u["FragmentPath"] == "":
		r.fail(r.apply(), "no file of %s: the slice has no limits", s.Slice())
	case u["NeedDaemonReload"] == "yes":
		r.fail("systemctl daemon-reload", "%s was changed, and systemd has not read it again", s.Slice())
	default:
		for _, limit := range limits.Slice(s) {
			if got := u[limit.Property]; (limit.Property == "MemoryMax" || limit.Property == "TasksMax") && got != limit.Want {
				r.fail(revert, "%s: %s is %s, want %s", s.Slice(), limit.Property, got, limit.Want)
				return
			}
		}
		if u["DevicePolicy"] != "closed" {
			r.fail(revert, "%s: DevicePolicy is %s, want closed: its jobs can open every GPU", s.Slice(), u["DevicePolicy"])
		}
	}
}

// revert returns the commands that make a slot's slice what was planned. apply changes
// neither drop-ins nor the settings that systemctl set-property wrote.
func (r *run) revert(s *node.Slot) string {
	return "systemctl revert " + s.Slice() + "; " + r.apply("--force")
}

// sliceLimits reads what the kernel enforces. A slice without a running unit has
// no cgroup; the agent's start makes it.
func (r *run) sliceLimits(s *node.Slot) {
	dir := s.CgroupDir()
	if r.stat(dir) == nil {
		if r.stat(s.Paused()) == nil {
			r.warn("systemctl start "+s.Unit(), "its slice is not active: no agent runs in it")
		}
		return
	}
	// What somebody set by hand outlives a reload: it is set back by hand as well.
	back := func(property, value string) string {
		return "systemctl set-property --runtime " + s.Slice() + " " + property + "=" + value
	}
	for _, limit := range limits.Slice(s) {
		got := r.read(dir + "/" + limit.File)
		if got == limit.Want || got == "" && limit.Optional {
			continue
		}
		mend := back(limit.Property, limit.Want)
		if file := r.offline(limit, s); file != "" {
			mend = "echo 1 > " + file
		}
		r.fail(mend, "its slice's %s is %s, want %s", limit.File, cmp.Or(got, "not there"), limit.Want)
	}
}

// offline returns the kernel's switch of the first processor of the slot that is
// offline, if the limit is about processors. No setting of the slice brings it back.
func (r *run) offline(limit limits.Limit, s *node.Slot) string {
	if limit.Property != "AllowedCPUs" {
		return ""
	}
	list, _ := cpulist.Parse(s.CPUs)
	for _, cpu := range list {
		if file := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu); r.read(file) == "0" {
			return file
		}
	}
	return ""
}

// sliceDevices tries the devices from inside the slice, where a preflight runs.
func (r *run) sliceDevices(s *node.Slot) {
	if r.m.Inside == nil || !r.m.Inside(s) {
		if len(s.Devices) > 0 {
			r.skip("tried from inside the slice only: the agent's start does, and kbnode verify")
		}
		return
	}
	r.fault(health.Confined(r.m.Root, s, r.c.Slots))
}

// Fit reports whether a slot's devices are fit for a job. A device that the slot's
// own job uses is.
func Fit(ctx context.Context, m Machine, s *node.Slot) error {
	err := health.Check(ctx, s, m.Device)
	if f, ok := errors.AsType[*health.Fault](err); ok && f.Code == health.CodeDeviceBusy {
		if r := (&run{ctx: ctx, m: m}); r.running(s) {
			return nil
		}
	}
	return err
}

func (r *run) device(s *node.Slot) {
	r.fault(health.Check(r.ctx, s, r.m.Device))
}

// fixes are what mends a device's fault, by its code.
var fixes = map[string]string{
	health.CodeNodeMissing: "systemctl restart kbnode-prepare.service",
	health.CodeDriver:      "nvidia-smi; dmesg | grep -i -e nvrm -e amdgpu; reboot",
	health.CodeDeviceGone:  "look for Xid in dmesg, and reboot; take the GPU out of the queue file if it stays away",
	health.CodeDeviceFault: "drain the slot, then set the compute mode (nvidia-smi -i UUID -c DEFAULT) or reset the GPU (nvidia-smi --gpu-reset -i UUID)",
	health.CodeDeviceBusy:  "end the process that uses it, which fuser -v /dev/nvidia* /dev/kfd shows",
}

func (r *run) fault(err error) {
	var f *health.Fault
	switch {
	case err == nil:
	case errors.As(err, &f) && f.Code == health.CodeDeviceBusy && r.running(r.slot):
		r.report(OK, "", "its devices are used by its own job")
	case errors.As(err, &f) && (f.Code == health.CodeOthersOpened || f.Code == health.CodeOwnDenied):
		// systemd sets a slice's device filter when a unit in the slice starts, not at
		// daemon-reload (seen with systemd 257).
		r.fail("systemctl revert "+r.slot.Slice()+"; systemctl restart "+r.slot.Unit(), "%s: %s", f.Code, f.Text)
	case errors.As(err, &f):
		r.fail(fixes[f.Code], "%s: %s", f.Code, f.Text)
	default:
		r.skip("%v", err)
	}
}

// An AgentStatus is what an agent says of itself.
type AgentStatus struct {
	Health  string `json:"health"`           // "ok"
	State   string `json:"aggregate_status"` // "idle", "busy"
	Workers []struct {
		Status string `json:"status"`
		Job    string `json:"current_job_id"`
	} `json:"workers"`
}

// AskAgent asks the slot's agent.
func AskAgent(ctx context.Context, m Machine, s *node.Slot) (*AgentStatus, error) {
	code, body, err := m.Get(ctx, fmt.Sprintf("http://127.0.0.1:%d/status.json", s.HealthPort))
	if err != nil {
		return nil, err
	}
	var st AgentStatus
	if err := json.Unmarshal(body, &st); err != nil {
		return nil, fmt.Errorf("status %d: %w", code, err)
	}
	return &st, nil
}

// running reports whether the slot's agent has a job.
func (r *run) running(s *node.Slot) bool {
	st, err := AskAgent(r.ctx, r.m, s)
	return err == nil && st.State == "busy"
}

func (r *run) proxy(s *node.Slot) {
	if s.Platform != "docker" {
		return
	}
	// systemd does not recreate the socket while the proxy runs. The proxy ends with the agent.
	remake := r.restart(s, "systemctl restart kbnode-proxy@"+s.Name+".socket; ")
	info := r.stat(s.ProxySocket())
	if info == nil {
		r.fail(remake, "no socket at %s: no container can be started", s.ProxySocket())
		return
	}
	u, err := r.m.User(s.User)
	if err != nil {
		return
	}
	if uid, _ := r.m.Owner(info); uid != u.UID || info.Mode().Perm()&0o077 != 0 {
		r.fail(remake, "%s: owner %d, mode %04o; want owner %d, 0600", s.ProxySocket(), uid, info.Mode().Perm(), u.UID)
	}
}

func (r *run) image(s *node.Slot) {
	if s.Platform != "docker" {
		return
	}
	pins, err := node.ReadPins(r.m.Root)
	if err != nil {
		r.fail("kbnode image update --all", "%v", err)
		return
	}
	pinned := 0
	for _, ref := range s.Images {
		pin, ok := pins.Images[ref]
		if !ok {
			continue
		}
		pinned++
		if r.dockerInfo().ServerVersion == "" {
			continue // said by the check of the engine
		}
		if err := r.ask("/images/"+pin.ID+"/json", nil, &struct{}{}); err != nil {
			r.fail("kbnode image update "+ref, "the engine has no image %.19s, which %s stands for: %v", pin.ID, ref, err)
		}
	}
	if pinned == 0 {
		r.fail("kbnode image update --all", "none of its images is pinned: every step would be refused")
	}
}

// VerifyDropIn is there while kbnode verify has the slot's agent.
func VerifyDropIn(s *node.Slot) string {
	return "/run/systemd/system/" + s.Unit() + ".d/50-kbnode-verify.conf"
}

// leftovers are containers of the slot without a job.
func (r *run) leftovers(s *node.Slot) {
	if s.Platform != "docker" || r.dockerInfo().ServerVersion == "" || r.running(s) {
		return
	}
	var left []struct{ ID string }
	query := url.Values{"all": {"1"}, "filters": {`{"label":[` + strconv.Quote(s.Label()) + `]}`}}
	if err := r.ask("/containers/json", query, &left); err != nil {
		r.skip("%v", err)
	} else if len(left) > 0 {
		r.warn("kbnode reap --slot "+s.Name, "%d containers of earlier jobs are there: the next job removes them", len(left))
	}
}

func (r *run) agentUnit(s *node.Slot) {
	u := r.unit(s.Unit(), "LoadState", "ActiveState", "SubState", "Result", "NRestarts", "NeedDaemonReload", "MainPID")
	restarts, _ := strconv.Atoi(u["NRestarts"])
	switch {
	case u == nil:
	case u["LoadState"] != "loaded":
		r.fail(r.apply(), "there is no %s", s.Unit())
	case r.stat(VerifyDropIn(s)) != nil:
		r.warn("kbnode verify", "its agent is turned to kbnode verify's stand-in: one that runs, or one that was ended by force")
	case u["NeedDaemonReload"] == "yes":
		r.fail("systemctl daemon-reload", "%s was changed, and systemd has not read it again", s.Unit())
	case u["ActiveState"] == "active" && restarts > 5:
		r.warn("journalctl --no-pager -n 50 -u "+s.Unit()+"; "+r.restart(s, ""), "its agent was started again %d times", restarts)
	case u["ActiveState"] == "active" && r.replaced(u["MainPID"]):
		r.warn(r.restart(s, ""), "%s was replaced since its agent started: the old program still runs", r.c.Agent.Path)
	case u["ActiveState"] == "active":
	case r.stat(s.Paused()) != nil:
		r.report(OK, "", "no agent runs: the slot is paused")
	default:
		r.fail("journalctl --no-pager -n 50 -u "+s.Unit()+"; systemctl start "+s.Unit(), "its agent is %s (%s, %s)", u["ActiveState"], u["SubState"], u["Result"])
	}
}

// replaced reports whether a process runs another file than the agent on disk.
func (r *run) replaced(pid string) bool {
	runs, err := os.Stat(r.path("/proc/" + pid + "/exe"))
	if err != nil {
		return false // only root can see it
	}
	disk, err := os.Stat(r.path(r.c.Agent.Path))
	return err == nil && !os.SameFile(runs, disk)
}

func (r *run) agentHealth(s *node.Slot) {
	if r.stat(s.Paused()) != nil {
		r.skip("the slot is paused")
		return
	}
	if user, err := r.m.User(s.User); err == nil {
		if uid := r.listener(s.HealthPort); uid >= 0 && uid != user.UID {
			r.fail(fmt.Sprintf("find the program with ss -ltnp 'sport = :%d', and end it", s.HealthPort), "user %d listens on its agent's port %d, want %s", uid, s.HealthPort, s.User)
			return
		}
	}
	st, err := AskAgent(r.ctx, r.m, s)
	switch {
	case err != nil:
		r.fail("look for the reason in journalctl -u "+s.Unit(), "its agent does not answer on port %d: %v", s.HealthPort, err)
	case st.Health != "ok":
		r.fail("look for the reason in journalctl -u "+s.Unit(), "its agent says %q of its connection: it is not in Buildkite's list, or its queue is not there", st.Health)
	}
}

// listener returns the user that listens on a port of 127.0.0.1, -1 if nobody does. The
// kernel lists such sockets with the address in hexadecimal digits and the state 0A; the
// eighth column is the user.
func (r *run) listener(port int) int {
	address := fmt.Sprintf("0100007F:%04X", port)
	for line := range strings.Lines(r.read("/proc/net/tcp")) {
		if f := strings.Fields(line); len(f) > 7 && f[1] == address && f[3] == "0A" {
			if uid, err := strconv.Atoi(f[7]); err == nil {
				return uid
			}
		}
	}
	return -1
}
