package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Systemctl is systemd by its own commands, which look at links and aliases as it
// does itself, and wait for what they started.
type Systemctl struct {
	// Root is "/", or that of a machine which does not run: its units are enabled and
	// disabled only.
	Root string
	Log  func(string) // what could not be checked; may be nil
}

var showProperties = "--property=Id,LoadState,ActiveState,UnitFileState,ConditionResult,ConditionTimestampMonotonic"

// States asks with one call for all units.
func (s *Systemctl) States(ctx context.Context, units []string) (map[string]resource.UnitState, error) {
	states := map[string]resource.UnitState{}
	if s.offline() {
		for _, name := range units {
			out, err := exec.CommandContext(ctx, "systemctl", "--root="+s.Root, "is-enabled", "--", name).Output()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return nil, err
			}
			state := strings.TrimSpace(string(out))
			is := resource.UnitState{Found: state != "" && state != "not-found"}
			is.Enabled, is.Static = unitFile(state)
			states[name] = is
		}
		return states, nil
	}
	out, err := s.run(ctx, append([]string{"show", showProperties, "--"}, units...)...)
	if err != nil {
		return nil, err
	}
	blocks := strings.Split(strings.TrimSpace(out), "\n\n")
	if len(blocks) != len(units) {
		return nil, fmt.Errorf("systemctl show: got %d units, want %d", len(blocks), len(units))
	}
	for i, block := range blocks {
		p := system.Properties(block)
		is := resource.UnitState{Found: p["LoadState"] != "not-found"}
		is.Enabled, is.Static = unitFile(p["UnitFileState"])
		is.Active = p["ActiveState"] != "inactive" && p["ActiveState"] != "failed"
		is.Held = !is.Active && p["ActiveState"] != "failed" && p["ConditionResult"] == "no" && p["ConditionTimestampMonotonic"] != "0"
		states[units[i]] = is
	}
	return states, nil
}

// unitFile is what the state of a unit's file says.
func unitFile(state string) (enabled, static bool) {
	switch state {
	case "enabled", "enabled-runtime":
		return true, false
	case "static", "generated", "transient", "alias", "indirect":
		return false, true
	}
	return false, false
}

func (s *Systemctl) offline() bool { return filepath.Clean(s.Root) != "/" }

// run runs systemctl. Its error is what it said.
func (s *Systemctl) run(ctx context.Context, args ...string) (string, error) {
	var out, errs bytes.Buffer
	c := exec.CommandContext(ctx, "systemctl", append([]string{"--no-pager", "--no-ask-password"}, args...)...)
	c.Stdout, c.Stderr = &out, &errs
	// An interrupt at the terminal is for kbnode alone.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("systemctl %s: %w: %s", args[0], err, text.Line(errs.String(), 600))
	}
	return out.String(), nil
}

// Reload is systemctl daemon-reload.
func (s *Systemctl) Reload(ctx context.Context) error {
	if s.offline() {
		return nil
	}
	_, err := s.run(ctx, "daemon-reload")
	return err
}

// Do starts, stops, restarts, enables or disables units.
func (s *Systemctl) Do(ctx context.Context, verb string, units []string) error {
	args := []string{verb}
	switch {
	case verb == resource.Enable || verb == resource.Disable:
		args = append(args, "--quiet", "--no-reload")
		if s.offline() {
			args = append(args, "--root="+s.Root)
		}
	case s.offline():
		return nil
	case verb == resource.Start:
		// One that failed too often does not start else. What never ran is not known.
		_, _ = s.run(ctx, append([]string{"reset-failed", "--"}, units...)...)
	}
	_, err := s.run(ctx, append(append(args, "--"), units...)...)
	return err
}

// Verify is systemd-analyze verify. Of what it says only faults in lines of the
// given files count: it also misses programs and units that are to come.
func (s *Systemctl) Verify(ctx context.Context, dir string, names []string) ([]string, error) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if s.Log != nil {
			s.Log("NOT RUN: systemd-analyze verify: there is no such program")
		}
		return nil, nil
	}
	args := []string{"verify", "--man=no"}
	for _, name := range names {
		if filepath.Dir(name) == "." {
			args = append(args, filepath.Join(dir, name))
		}
	}
	c := exec.CommandContext(ctx, analyze, args...)
	c.Env = append(c.Environ(), "SYSTEMD_UNIT_PATH="+dir+":", "SYSTEMD_LOG_LEVEL=warning", "SYSTEMD_COLORS=0", "LC_ALL=C")
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	return faultsOf(string(out), dir, names), nil
}

var faultLine = regexp.MustCompile(`^(.+?):(\d+): (.+)$`)

// faultsOf picks the messages that name a line of one of the files.
func faultsOf(out, dir string, names []string) []string {
	var faults []string
	for line := range strings.Lines(out) {
		m := faultLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		name := strings.TrimPrefix(m[1], dir+"/")
		if slices.ContainsFunc(names, func(have string) bool { return have == name || filepath.Base(have) == name }) {
			fault := text.Line(name+":"+m[2]+": "+m[3], 300)
			if !slices.Contains(faults, fault) { // each instance says it again
				faults = append(faults, fault)
			}
		}
	}
	return faults
}

// verify shows systemd the unit files in a directory of their own, before any of them
// is installed.
func (m *Machine) verify(ctx context.Context, want *resource.Set, actions []resource.Action) error {
	units := slices.DeleteFunc(slices.Clone(want.Files), func(f resource.File) bool {
		return path.Dir(f.Path) != node.UnitDir && path.Dir(path.Dir(f.Path)) != node.UnitDir
	})
	if !slices.ContainsFunc(units, func(f resource.File) bool {
		return slices.ContainsFunc(actions, func(a resource.Action) bool { return a.Name == f.Path })
	}) {
		return nil
	}
	dir, err := os.MkdirTemp("", "kbnode-units-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var names []string
	for _, f := range units {
		name := strings.TrimPrefix(f.Path, node.UnitDir+"/")
		names = append(names, name)
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, f.Bytes(), 0o644)); err != nil {
			return err
		}
	}
	slices.Sort(names)
	instances, err := instantiate(dir, names)
	if err != nil {
		return err
	}
	faults, err := m.Systemd.Verify(ctx, dir, slices.Concat(names, instances))
	if err != nil {
		return fmt.Errorf("asking systemd about the units: %w", err)
	}
	if len(faults) > 0 {
		return fmt.Errorf("systemd does not take the units, and nothing was changed:\n  %s", strings.Join(faults, "\n  "))
	}
	return nil
}

// instantiate makes the instances that have files of their own, which nothing
// else would look at.
func instantiate(dir string, names []string) ([]string, error) {
	var instances []string
	for _, name := range names {
		unit := strings.TrimSuffix(filepath.Dir(name), ".d")
		before, after, ok := strings.Cut(unit, "@")
		template := before + "@" + filepath.Ext(after)
		if !ok || !slices.Contains(names, template) || slices.Contains(instances, unit) {
			continue
		}
		if err := os.Symlink(template, filepath.Join(dir, unit)); err != nil {
			return nil, err
		}
		instances = append(instances, unit)
	}
	return instances, nil
}
