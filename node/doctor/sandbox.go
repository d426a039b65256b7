package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/node"
)

// proxyCaps are the capabilities that the unit of a slot's proxy names.
var proxyCaps = map[string]uint64{"cap_dac_override": 1 << unix.CAP_DAC_OVERRIDE, "cap_fowner": 1 << unix.CAP_FOWNER, "cap_sys_admin": 1 << unix.CAP_SYS_ADMIN}

// restart returns the commands that restart a slot's agent and proxy between two jobs.
// While they are stopped, command runs; it is empty or ends in "; ". A paused slot stays
// paused.
func (r *run) restart(s *node.Slot, command string) string {
	commands := "kbnode drain " + s.Name + "; " + command
	if r.stat(s.Paused()) != nil {
		return strings.TrimSuffix(commands, "; ")
	}
	return commands + "kbnode resume " + s.Name
}

func proxyUnit(s *node.Slot) string { return "kbnode-proxy@" + s.Name + ".service" }

// sandbox compares what systemd applies to the slot's agent and proxy with kbnode's
// units. A drop-in may change any setting, and the hash of the unit's file stays
// right.
func (r *run) sandbox(s *node.Slot) {
	u, err := r.m.User(s.User)
	if err != nil {
		return // reported by the check of the user
	}
	r.confined(s, s.Unit(), s.User, u.UID, nil)
	if s.Platform == "docker" {
		r.confined(s, proxyUnit(s), "", 0, proxyCaps)
	}
}

// confined checks one unit, and its process if one runs.
func (r *run) confined(s *node.Slot, unit, user string, uid int, caps map[string]uint64) {
	u := r.unit(unit, "LoadState", "User", "NoNewPrivileges", "ProtectSystem", "CapabilityBoundingSet", "DropInPaths", "MainPID")
	if u == nil || u["LoadState"] != "loaded" {
		return // reported by the check of the agent's unit
	}
	for _, want := range [][2]string{{"User", user}, {"NoNewPrivileges", "yes"}, {"ProtectSystem", "strict"}} {
		if got := u[want[0]]; got != want[1] {
			r.overridden(s, unit, u, want[0], "is %q, want %q", got, want[1])
		}
	}
	mask := uint64(0)
	for _, bit := range caps {
		mask |= bit
	}
	for name := range strings.FieldsSeq(u["CapabilityBoundingSet"]) {
		if caps[name] == 0 {
			r.overridden(s, unit, u, "CapabilityBoundingSet", "has %s, which kbnode's unit takes away", name)
			break
		}
	}
	status := r.process(u["MainPID"])
	if status == nil {
		return
	}
	if ids := strings.Fields(status["Uid"]); slices.ContainsFunc(ids, func(id string) bool { return id != strconv.Itoa(uid) }) {
		r.fail(r.restart(s, ""), "%s: process %s runs with the user numbers %s, want %d", unit, u["MainPID"], strings.Join(ids, " "), uid)
	}
	for _, name := range []string{"CapEff", "CapBnd"} {
		if have, err := strconv.ParseUint(status[name], 16, 64); err != nil || have&^mask != 0 {
			r.fail(r.restart(s, ""), "%s: process %s has the capabilities %q (%s), want none beyond %x", unit, u["MainPID"], status[name], name, mask)
			return
		}
	}
	if status["NoNewPrivs"] != "1" {
		r.fail(r.restart(s, ""), "%s: process %s may gain privileges by setuid programs: NoNewPrivs is %q, want 1", unit, u["MainPID"], status["NoNewPrivs"])
	}
}

// overridden reports a property that differs from kbnode's unit, and names the
// drop-ins that set it.
func (r *run) overridden(s *node.Slot, unit string, u map[string]string, property, format string, args ...any) {
	var files []string
	for file := range strings.FieldsSeq(u["DropInPaths"]) {
		if file != filepath.Join(node.UnitDir, unit+".d", "host.conf") && sets(r.read(file), property) { // kbnode's own is not the culprit
			files = append(files, file)
		}
	}
	fault := fmt.Sprintf("%s: %s "+format, append([]any{unit, property}, args...)...)
	if culprits := strings.Join(files, " and "); culprits != "" {
		restart := strings.ReplaceAll(r.restart(s, ""), "; ", ", ")
		r.fail(fmt.Sprintf("take %s= out of %s; then systemctl daemon-reload, %s", property, culprits, restart), "%s; %s sets it", fault, culprits)
		return
	}
	r.fail(r.apply("--force")+"; "+r.restart(s, ""), "%s; no drop-in sets it", fault)
}

// sets reports whether the text of a unit's file sets a property.
func sets(file, property string) bool {
	for line := range strings.Lines(file) {
		if name, _, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == property {
			return true
		}
	}
	return false
}

// process returns the fields of /proc/PID/status, nil if there is no such process.
func (r *run) process(pid string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(r.read("/proc/" + pid + "/status")) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	if len(fields) == 0 {
		return nil
	}
	return fields
}

// rootGroups are the groups whose members can become root.
var rootGroups = []string{"root", "docker", "sudo", "wheel", "adm", "disk", "lxd"}

// agentGroup looks for groups that are as good as root: in the accounts, in what
// systemd adds, and in the running agent, which keeps the groups that it started with.
func (r *run) agentGroup(s *node.Slot) {
	user, err := r.m.User(s.User)
	if err != nil {
		return // reported by the check of the user
	}
	for _, group := range user.Groups {
		if slices.Contains(rootGroups, group) {
			r.fail("gpasswd -d "+s.User+" "+group+"; "+r.restart(s, ""), "%s is in group %s, whose members can become root", s.User, group)
		}
	}
	u := r.unit(s.Unit(), "SupplementaryGroups", "DropInPaths", "MainPID")
	if u == nil {
		return
	}
	for group := range strings.FieldsSeq(u["SupplementaryGroups"]) {
		if number, err := strconv.Atoi(group); err != nil || !slices.Contains(s.Groups, number) {
			r.overridden(s, s.Unit(), u, "SupplementaryGroups", "has %s, which kbnode's unit does not name", group)
		}
	}
	for gid := range strings.FieldsSeq(r.process(u["MainPID"])["Groups"]) {
		if name := r.groupName(gid); slices.Contains(rootGroups, name) {
			r.fail(r.restart(s, ""), "process %s of %s has group %s, whose members can become root", u["MainPID"], s.Unit(), name)
		}
	}
}

// groupName returns the name of a group's number. Any group of docker's socket is
// docker's.
func (r *run) groupName(gid string) string {
	if info := r.stat(r.c.Docker.Socket); info != nil && r.c.Docker.Socket != "" {
		if _, owner := r.m.Owner(info); strconv.Itoa(owner) == gid {
			return "docker"
		}
	}
	for line := range strings.Lines(r.read("/etc/group")) {
		if f := strings.Split(line, ":"); len(f) > 2 && f[2] == gid {
			return f[0]
		}
	}
	return gid
}
