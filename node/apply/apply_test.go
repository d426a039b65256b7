package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/resource"
)

// fixture is a machine below a directory, with a docker and an old agent that run.
type fixture struct {
	dir     string
	machine *Machine
	systemd *fakeSystemd
	first   resource.Set // two slots
	second  resource.Set // one of them, and a new config
}

var (
	docker   = "docker.service"
	oldAgent = "buildkite-agent-gpu0.service"
)

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := fixtureAt(t.TempDir())
	root := f.machine.Root
	for name, content := range map[string]string{
		"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "etc/group": "root:x:0:\nrender:x:105:\n",
		"etc/systemd/system/" + oldAgent: "[Service]\nExecStart=old\n", "etc/systemd/system/" + oldAgent + ".d/vendor.conf": "[Service]\n",
		"usr/lib/systemd/system/" + docker: "[Service]\n", "etc/docker/daemon.json": "{\"log-level\": \"warn\"}\n",
		"etc/kbnode/secretd.yml": "the vendor's\n", "usr/bin/agent": "an old one", "run/x": "",
	} {
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"agent": strings.Repeat("a new agent\n", 500), "kbnode": "kbnode itself"} {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "var/lib"), 0o755), f.systemd.Reload(t.Context()), f.systemd.Do(t.Context(), "enable", []string{oldAgent}), f.systemd.Do(t.Context(), "start", []string{docker, oldAgent})); err != nil {
		t.Fatal(err)
	}
	return f
}

// fixtureAt is the machine that lies in a directory already.
func fixtureAt(dir string) *fixture {
	f := &fixture{dir: dir}
	root := filepath.Join(dir, "root")
	f.systemd = &fakeSystemd{root: root, file: filepath.Join(dir, "systemd.json"), uses: map[string][]string{}}
	f.machine = &Machine{Root: root, Systemd: f.systemd, Users: &fakeUsers{root}, Owners: os.Geteuid() == 0, NoSync: true, Self: "/usr/bin/kbnode"}
	f.first = f.set("version: 1\n", "gpu0", "gpu1")
	f.second = f.set("version: 1 # and more\n", "gpu0")
	for _, s := range []resource.Set{f.first, f.second} {
		for _, u := range s.Units {
			f.systemd.uses[u.Name] = u.Uses
		}
	}
	return f
}

func (f *fixture) set(config string, slots ...string) resource.Set {
	hash := func(name string) string {
		content := map[string]string{"agent": strings.Repeat("a new agent\n", 500), "kbnode": "kbnode itself"}[name]
		sum := sha256.Sum256([]byte(content))
		return hex.EncodeToString(sum[:])
	}
	s := resource.Set{
		Dirs: []resource.Dir{
			{Path: "/etc/kbnode", Mode: 0o755, Owner: "root", Group: "root"}, {Path: "/var/lib/kbnode", Mode: 0o755, Owner: "root", Group: "root"},
			{Path: "/var/lib/kbnode/slots", Mode: 0o711, Owner: "root", Group: "root"},
			{Path: node.DisksDir, Mode: 0o700, Owner: "root", Group: "root"},
		},
		Copies: []resource.Copy{{Path: "/usr/bin/agent", From: filepath.Join(f.dir, "agent"), SHA256: hash("agent"), Mode: 0o755}, {Path: "/usr/bin/kbnode", From: filepath.Join(f.dir, "kbnode"), SHA256: hash("kbnode"), Mode: 0o755}},
		Files: []resource.File{
			{Path: "/etc/kbnode/slots.yml", Mode: 0o644, Owner: "root", Group: "root", Content: []byte(config), Marked: true},
			{Path: "/etc/kbnode/hooks/pre-bootstrap", Mode: 0o755, Owner: "root", Group: "root", Content: []byte("#!/bin/sh\ntrue\n"), Marked: true},
			{Path: "/etc/kbnode/token", Mode: 0o600, Owner: "root", Group: "root", Content: []byte("hush"), Secret: true},
			{Path: "/etc/docker/daemon.json", Mode: 0o644, Owner: "root", Group: "root", Content: []byte("{\"features\": {\"cdi\": true}, \"log-level\": \"warn\"}\n"), Foreign: true},
			{Path: "/etc/systemd/system/kbnode-agent@.service", Mode: 0o644, Owner: "root", Group: "root", Content: []byte("[Service]\n# " + config), Marked: true},
		},
		Units: []resource.Unit{{Name: docker, Active: true, Uses: []string{"/etc/docker/daemon.json"}, Asks: true}},
		Off:   []string{oldAgent},
	}
	for _, slot := range slots {
		user, dir := "kbagent-"+slot, "/var/lib/kbnode/slots/"+slot
		s.Users = append(s.Users, resource.User{Name: user, Home: dir})
		s.Dirs = append(s.Dirs, resource.Dir{Path: dir, Mode: 0o700, Owner: user, Group: user}, resource.Dir{Path: dir + "/tmp", Mode: fs.ModeSticky | 0o770, Owner: user, Group: user})
		s.Files = append(s.Files, resource.File{Path: "/etc/systemd/system/kbnode-" + slot + ".slice", Mode: 0o644, Owner: "root", Group: "root", Content: []byte("[Slice]\n"), Marked: true})
		s.Units = append(s.Units, resource.Unit{Name: "kbnode-" + slot + ".slice", Active: true}, resource.Unit{
			Name: "kbnode-agent@" + slot + ".service", Enabled: true, Active: true, Drain: true,
			Uses: []string{"/etc/kbnode/slots.yml", "/etc/systemd/system/kbnode-agent@.service"},
		})
	}
	return s
}

var allLeave = Options{Adopt: true, DockerRestart: true}

func (f *fixture) apply(s *resource.Set) ([]resource.Action, error) {
	return Apply(context.Background(), f.machine, s, allLeave)
}

func (f *fixture) mustApply(t *testing.T, s *resource.Set) []resource.Action {
	t.Helper()
	actions, err := f.apply(s)
	if err != nil {
		t.Fatal(err)
	}
	return actions
}

func (f *fixture) mustUndo(t *testing.T) {
	t.Helper()
	if _, err := Undo(t.Context(), f.machine, Options{}, false); err != nil {
		t.Fatal(err)
	}
}

// tree is the machine, without what the ledger holds.
func (f *fixture) tree(t *testing.T) map[string]string {
	all := tree(t, f.machine.Root)
	maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasPrefix(name, "var/lib/kbnode/ledger") })
	return all
}

// running are the units that run, each with what it read.
func (f *fixture) running() map[string]string { return f.systemd.state().Active }

func TestApplyTwice(t *testing.T) {
	f := newFixture(t)
	if actions := f.mustApply(t, &f.first); len(actions) < 20 {
		t.Errorf("Apply did %d things", len(actions))
	}
	before, reloads := tree(t, f.machine.Root), f.systemd.state().Reloads
	if actions := f.mustApply(t, &f.first); len(actions) > 0 {
		t.Errorf("the second Apply did %+v", actions)
	}
	if diff := cmp.Diff(before, tree(t, f.machine.Root)); diff != "" {
		t.Errorf("the second Apply changed (-before +after):\n%s", diff)
	}
	if f.systemd.state().Reloads != reloads || reloads > 2 {
		t.Errorf("systemd was reloaded %d times, then %d", reloads, f.systemd.state().Reloads-reloads)
	}
	f.checkRunning(t, &f.first)
}

// checkRunning checks that each unit runs with what its files hold, and that no
// other does.
func (f *fixture) checkRunning(t *testing.T, s *resource.Set) {
	t.Helper()
	want := map[string]string{}
	for _, u := range s.Units {
		want[u.Name] = f.systemd.content(u.Name)
	}
	if diff := cmp.Diff(want, f.running()); diff != "" {
		t.Errorf("what runs (-want +got):\n%s", diff)
	}
}

func TestUndoLeavesTheTreeEqual(t *testing.T) {
	f := newFixture(t)
	before, ran := tree(t, f.machine.Root), f.running()
	f.mustApply(t, &f.first)
	f.mustApply(t, &f.second)
	f.mustUndo(t)
	f.checkEqual(t, before, ran)
	if done, err := Undo(t.Context(), f.machine, Options{}, false); done || err != nil {
		t.Errorf("a second Undo = %t, %v", done, err)
	}
}

func (f *fixture) checkEqual(t *testing.T, before, ran map[string]string) {
	t.Helper()
	if diff := cmp.Diff(before, tree(t, f.machine.Root)); diff != "" {
		t.Errorf("after Undo (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(ran)), slices.Sorted(maps.Keys(f.running()))); diff != "" {
		t.Errorf("what runs after Undo (-before +after):\n%s", diff)
	}
}

// steps counts the places where an apply can be killed.
func (f *fixture) steps(run func() error) (n int, err error) {
	f.machine.Step = func(string) error { n++; return nil }
	err = run()
	f.machine.Step = nil
	return n, err
}

var errCrash = errors.New("killed")

// crashAt ends a run at its n-th step.
func (f *fixture) crashAt(t *testing.T, n int, run func() error) (where string) {
	t.Helper()
	f.machine.Step = func(what string) error {
		if n--; n == 0 {
			where = what
			return errCrash
		}
		return nil
	}
	if err := run(); !errors.Is(err, errCrash) {
		t.Fatalf("error %v, want a crash", err)
	}
	f.machine.Step = nil
	return where
}

// Wherever an apply ends, the next one makes the same of it, and undo the machine
// as it was. So with an undo.
func TestCrashes(t *testing.T) {
	testCrashes(t, 4)
}

func TestSlowCrashes(t *testing.T) {
	testenv.NeedSlow(t)
	testCrashes(t, 1)
}

// testCrashes ends a run at each step that every divides.
func testCrashes(t *testing.T, every int) {
	type run struct {
		name  string
		setup func(*fixture) error
		run   func(*fixture) error
		want  func(*fixture) *resource.Set
	}
	apply := func(second bool) func(*fixture) error {
		return func(f *fixture) error {
			s := &f.first
			if second {
				s = &f.second
			}
			_, err := f.apply(s)
			return err
		}
	}
	undo := func(f *fixture) error {
		_, err := Undo(context.Background(), f.machine, Options{}, false)
		return err
	}
	first, second := func(f *fixture) *resource.Set { return &f.first }, func(f *fixture) *resource.Set { return &f.second }
	nothing := func(*fixture) error { return nil }
	for _, r := range []run{
		{"first", nothing, apply(false), first}, {"second", apply(false), apply(true), second}, {"undo", apply(false), undo, first},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			whole := newFixture(t)
			before, ran := tree(t, whole.machine.Root), whole.running()
			if err := r.setup(whole); err != nil {
				t.Fatal(err)
			}
			n, err := whole.steps(func() error { return r.run(whole) })
			if err != nil {
				t.Fatal(err)
			}
			whole.mustApply(t, r.want(whole))
			after := whole.tree(t)
			t.Logf("%d steps", n)
			for i := every; i <= n; i += every {
				for _, again := range []bool{true, false} {
					if every > 1 && again == (i/every%2 == 0) {
						continue // the next step has it
					}
					f := newFixture(t)
					if err := r.setup(f); err != nil {
						t.Fatal(err)
					}
					where := f.crashAt(t, i, func() error { return r.run(f) })
					if again {
						f.mustApply(t, r.want(f))
						if diff := cmp.Diff(after, f.tree(t)); diff != "" {
							t.Errorf("killed at %d, %s; then Apply (-want +got):\n%s", i, where, diff)
						}
						f.checkRunning(t, r.want(f))
						if actions := f.mustApply(t, r.want(f)); len(actions) > 0 {
							t.Errorf("killed at %d, %s: Apply, then again: %+v", i, where, actions)
						}
					}
					f.mustUndo(t)
					f.checkEqual(t, before, ran)
					if t.Failed() {
						t.Fatalf("killed at step %d, %s; apply again: %t", i, where, again)
					}
				}
			}
		})
	}
}

// The power fails around the restart of docker. At boot docker reads the new settings,
// and undo has it read the old ones, or says that it did not.
func TestUndoAfterAPowerCutRestoresDocker(t *testing.T) {
	const daemon = " /etc/docker/daemon.json"
	for _, cut := range []string{"after change" + daemon, "before restart docker.service", "after restart docker.service"} {
		for _, allowed := range []bool{true, false} {
			f := newFixture(t)
			before, ran := tree(t, f.machine.Root), f.running()
			f.machine.Step = func(what string) error {
				if what == cut {
					return errCrash
				}
				return nil
			}
			if _, err := f.apply(&f.first); !errors.Is(err, errCrash) {
				t.Fatalf("cut at %q: Apply = %v, want a crash", cut, err)
			}
			f.machine.Step = nil
			if err := f.systemd.Do(t.Context(), "restart", []string{docker}); err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			o := Options{DockerRestart: allowed, Log: func(line string) { log.WriteString(line + "\n") }}
			if _, err := Undo(t.Context(), f.machine, o, false); err != nil {
				t.Fatal(err)
			}
			f.checkEqual(t, before, ran)
			restored := f.running()[docker] == ran[docker]
			warned := strings.Contains(log.String(), "docker.service still runs with kbnode's settings")
			if restored != allowed || warned == allowed {
				t.Errorf("cut at %q, restart allowed %t: docker has its old settings %t, warning %t; log:\n%s", cut, allowed, restored, warned, log.String())
			}
		}
	}
}

// The same with a process that is killed by the kernel, so that nothing of it
// tidies up.
func TestKills(t *testing.T) {
	if dir := os.Getenv("KBNODE_TEST_KILL_DIR"); dir != "" {
		killed(t, dir)
		return
	}
	testKills(t, 12)
}

func TestSlowKills(t *testing.T) {
	testenv.NeedSlow(t)
	testKills(t, 1)
}

func testKills(t *testing.T, every int) {
	f := newFixture(t)
	n, err := f.steps(func() error { _, err := f.apply(&f.first); return err })
	if err != nil {
		t.Fatal(err)
	}
	after := f.tree(t)
	for i := 1; i <= n; i += every {
		f := newFixture(t)
		before, ran := tree(t, f.machine.Root), f.running()
		c := exec.Command(os.Args[0], "-test.run=^TestKills$")
		c.Env = append(os.Environ(), "KBNODE_TEST_KILL_DIR="+f.dir, "KBNODE_TEST_KILL_AT="+strings.Repeat("x", i))
		if out, err := c.CombinedOutput(); err == nil || c.ProcessState.String() != "signal: killed" {
			t.Fatalf("the child ended by itself: %v\n%s", err, out)
		}
		if i/every%2 == 0 {
			f.mustApply(t, &f.first)
			if diff := cmp.Diff(after, f.tree(t)); diff != "" {
				t.Errorf("killed at %d, then Apply (-want +got):\n%s", i, diff)
			}
			f.checkRunning(t, &f.first)
		}
		f.mustUndo(t)
		f.checkEqual(t, before, ran)
		if t.Failed() {
			t.Fatalf("killed at step %d", i)
		}
	}
}

func killed(t *testing.T, dir string) {
	f := fixtureAt(dir)
	n := len(os.Getenv("KBNODE_TEST_KILL_AT"))
	f.machine.Step = func(string) error {
		if n--; n == 0 {
			self, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			if err := self.Kill(); err != nil {
				return err
			}
			select {}
		}
		return nil
	}
	f.mustApply(t, &f.first)
}
