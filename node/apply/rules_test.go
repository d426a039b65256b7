package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/node/resource"
)

// refusedFor are the names that an error refuses for.
func refusedFor(t *testing.T, err error) []string {
	t.Helper()
	var refused *Refusal
	if !errors.As(err, &refused) {
		t.Fatalf("error %v, want a refusal", err)
	}
	var names []string
	for _, c := range refused.Conflicts {
		names = append(names, c.Name+" "+c.Flag)
	}
	return names
}

// What apply has no leave for it refuses before it has changed anything.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, f *fixture)
		options Options
		want    []string
	}{
		"what others put there": {
			nil, Options{DockerRestart: true},
			[]string{"/usr/bin/agent --adopt", oldAgent + " --adopt"},
		},
		"docker": {nil, Options{Adopt: true}, []string{docker + " --allow-docker-restart"}},
		"changed by hand": {
			func(t *testing.T, f *fixture) {
				f.mustApply(t, &f.first)
				f.write(t, "etc/kbnode/slots.yml", "mine\n")
				f.write(t, "usr/bin/agent", "upgraded")
				f.write(t, "etc/kbnode/token", "theirs")
			},
			allLeave, []string{"/usr/bin/agent --force", "/etc/kbnode/slots.yml --force", "/etc/kbnode/token --force"},
		},
		"a directory in place of a file": {
			func(t *testing.T, f *fixture) {
				if err := os.MkdirAll(filepath.Join(f.machine.Root, "etc/kbnode/token"), 0o755); err != nil {
					t.Fatal(err)
				}
			},
			Options{Adopt: true, Force: true, DockerRestart: true}, []string{"/etc/kbnode/token "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if c.prepare != nil {
				c.prepare(t, f)
			}
			before, ran := tree(t, f.machine.Root), f.running()
			_, err := Apply(t.Context(), f.machine, &f.first, c.options)
			if diff := cmp.Diff(c.want, refusedFor(t, err)); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
			f.checkEqual(t, before, ran)
		})
	}
}

// A user that was there before may run a slot only if it can do no more than one that
// kbnode makes. The refusal says what was found.
func TestUsersOfTheVendorMustBeHarmless(t *testing.T) {
	for _, c := range []struct{ passwd, group, shadow, want string }{
		{"kbagent-gpu0:x:900:900::/:/usr/sbin/nologin", "kbagent-gpu0:x:900:", "kbagent-gpu0:!:1::::::", ""},
		{"kbagent-gpu0:x:900:900::/:/bin/bash", "kbagent-gpu0:x:900:", "kbagent-gpu0:!:1::::::", `the shell "/bin/bash"`},
		{"kbagent-gpu0:x:900:900::/:/bin/false", "kbagent-gpu0:x:900:\ndocker:x:5:a,kbagent-gpu0", "", "the group docker"},
		{"kbagent-gpu0:x:900:5::/:/bin/false", "docker:x:5:", "", "the group docker"},
		{"kbagent-gpu0:x:900:900::/:/bin/false", "", "kbagent-gpu0:$y$hash:1::::::", "a password"},
		{"kbagent-gpu0:x:900:900::/:/bin/false", "", "kbagent-gpu0::1::::::", "a password, or an empty one"},
		{"kbagent-gpu0:x:0:900::/:/bin/false", "", "", "the number of root"},
	} {
		f := newFixture(t)
		f.write(t, "etc/passwd", "root:x:0:0::/root:/bin/sh\n"+c.passwd+"\n")
		f.write(t, "etc/group", "root:x:0:\nrender:x:105:\n"+c.group+"\n")
		f.write(t, "etc/shadow", c.shadow+"\n")
		_, err := f.apply(&f.first)
		if c.want == "" {
			if err != nil {
				t.Errorf("with %q: Apply = %v", c.passwd, err)
			}
			continue
		}
		if names := refusedFor(t, err); !slices.Equal(names, []string{"kbagent-gpu0 "}) || !strings.Contains(err.Error(), "with "+c.want) || strings.Contains(err.Error(), "hash") {
			t.Errorf("with %q, %q, %q: refused %v: %v, want %q", c.passwd, c.group, c.shadow, names, err, c.want)
		}
	}
}

func (f *fixture) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.machine.Root, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestForceReplacesWhatWasChangedByHand(t *testing.T) {
	f := newFixture(t)
	before, ran := tree(t, f.machine.Root), f.running()
	f.mustApply(t, &f.first)
	after := f.tree(t)
	f.write(t, "etc/kbnode/slots.yml", "mine\n")
	if _, err := Apply(t.Context(), f.machine, &f.first, Options{Force: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, f.tree(t)); diff != "" {
		t.Errorf("after --force (-want +got):\n%s", diff)
	}
	f.checkRunning(t, &f.first)
	f.mustUndo(t)
	f.checkEqual(t, before, ran)
}

// Undo lists all that was changed by hand, and changes nothing; with leave it
// brings back what was there first.
func TestUndoRefusesWhatWasChangedByHand(t *testing.T) {
	f := newFixture(t)
	before, ran := tree(t, f.machine.Root), f.running()
	f.mustApply(t, &f.first)
	f.write(t, "etc/docker/daemon.json", "mine\n")
	f.write(t, "etc/kbnode/token", "theirs")
	changed, runs := tree(t, f.machine.Root), f.running()
	_, err := Undo(t.Context(), f.machine, Options{}, false)
	if diff := cmp.Diff([]string{"/etc/kbnode/token --force", "/etc/docker/daemon.json --force"}, refusedFor(t, err)); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	f.checkEqual(t, changed, runs)
	if _, err := Undo(t.Context(), f.machine, Options{Force: true}, false); err != nil {
		t.Fatal(err)
	}
	f.checkEqual(t, before, ran)
}

// The vendor's daemon.json keeps mode, owner and later edits. Undo takes out only the
// key that kbnode set.
func TestUndoKeepsTheVendorsEdits(t *testing.T) {
	const daemon = "etc/docker/daemon.json"
	for _, c := range []struct{ before, edited, want string }{
		{"{\"log-level\": \"warn\"}\n", "", "{\"log-level\": \"warn\"}\n"},
		{"{\"log-level\": \"warn\"}\n", "{\"features\": {\"cdi\": true}, \"log-level\": \"info\"}", "{\n  \"log-level\": \"info\"\n}\n"},
		{"{\"features\": {\"cdi\": false}}", "{\"features\": {\"cdi\": true, \"x\": 1}}", "{\n  \"features\": {\n    \"cdi\": false,\n    \"x\": 1\n  }\n}\n"},
		{"{\"log-level\": \"warn\"}", "{\"mine\": 1}", "{\"mine\": 1}"},
		{"", "{\"features\": {\"cdi\": true}}", ""},
		{"", "{\"features\": {\"cdi\": true}, \"mine\": 1}", "{\n  \"mine\": 1\n}\n"},
	} {
		f := newFixture(t)
		name := filepath.Join(f.machine.Root, daemon)
		var err error
		if f.write(t, daemon, c.before); c.before == "" {
			err = os.Remove(name)
		} else {
			err = os.Chmod(name, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := resource.SetCDI([]byte(c.before), []byte("true"))
		if err != nil {
			t.Fatal(err)
		}
		f.first.Files[3].Content = content
		f.mustApply(t, &f.first)
		if mode := tree(t, f.machine.Root)[daemon][:10]; c.before != "" && mode != "-rw-------" {
			t.Errorf("after apply, %s has mode %s, want -rw-------", daemon, mode)
		}
		if c.edited != "" {
			f.write(t, daemon, c.edited)
		}
		// An apply between keeps the edit as well.
		edited := c.edited
		if edited == "" {
			edited = c.before
		}
		if f.first.Files[3].Content, err = resource.SetCDI([]byte(edited), []byte("true")); err != nil {
			t.Fatal(err)
		}
		if c.edited != "{\"mine\": 1}" {
			f.mustApply(t, &f.first)
		}
		f.mustUndo(t)
		got, err := os.ReadFile(name)
		if string(got) != c.want || (err != nil) != (c.want == "") {
			t.Errorf("before %q, edited %q: after undo got %q, %v, want %q", c.before, c.edited, got, err, c.want)
		}
	}
}

// What a slot wrote stays without --purge, and nobody's but root's; with it, no
// trace is left.
func TestUndoAndData(t *testing.T) {
	for _, purge := range []bool{false, true} {
		t.Run(fmt.Sprintf("purge=%t", purge), func(t *testing.T) {
			f := newFixture(t)
			before := tree(t, f.machine.Root)
			f.mustApply(t, &f.first)
			f.write(t, "var/lib/kbnode/slots/gpu0/tmp/result", "1")
			f.write(t, "var/lib/kbnode/pins.yml", "version: 1")
			f.write(t, "var/lib/kbnode/disks/gpu0.img", "not worth keeping")
			calls := 0
			o := Options{Purge: func(context.Context) {
				if calls++; !exists(filepath.Join(f.machine.Root, "var/lib/kbnode/pins.yml")) || len(f.running()) > 1 {
					t.Errorf("Purge is called after the pins went, or while agents run: %v", f.running())
				}
			}}
			if _, err := Undo(t.Context(), f.machine, o, purge); err != nil {
				t.Fatal(err)
			}
			if (calls == 1) != purge {
				t.Errorf("Purge is called %d times", calls)
			}
			after := tree(t, f.machine.Root)
			if purge {
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("after --purge (-before +after):\n%s", diff)
				}
				return
			}
			var kept []string
			for _, name := range slices.Sorted(maps.Keys(after)) {
				if before[name] == "" {
					kept = append(kept, name)
				}
			}
			want := []string{"var/lib/kbnode", "var/lib/kbnode/pins.yml", "var/lib/kbnode/slots", "var/lib/kbnode/slots/gpu0", "var/lib/kbnode/slots/gpu0/tmp", "var/lib/kbnode/slots/gpu0/tmp/result"}
			if diff := cmp.Diff(want, kept); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if got := after["var/lib/kbnode/slots/gpu0"]; f.machine.Owners && got != "drwx------ 0:0" {
				t.Errorf("the slot's directory is %s", got)
			}
			// It is no hindrance for the next apply.
			f.mustApply(t, &f.first)
			f.checkRunning(t, &f.first)
		})
	}
}

// A unit file that systemd does not take ends apply before anything is changed.
func TestMisspeltUnits(t *testing.T) {
	f := newFixture(t)
	before, ran := tree(t, f.machine.Root), f.running()
	f.first.Files[4].Content = []byte("[Service]\nMisspelt=1\n")
	if _, err := f.apply(&f.first); err == nil || !strings.Contains(err.Error(), "nothing was changed:\n  kbnode-agent@.service:2: Unknown key") {
		t.Errorf("error %v", err)
	}
	f.checkEqual(t, before, ran)
}

// Agents are told once to stop, all by one call; one that does not start keeps no
// other from it, and starts with the next apply.
func TestAgents(t *testing.T) {
	f := newFixture(t)
	f.mustApply(t, &f.first)
	more := f.set("version: 1 # new\n", strings.Repeat("a", 40), "gpu0", "gpu1")
	stops := 0
	f.systemd.fail = func(verb, unit string) error {
		if verb == "stop" {
			stops++
		}
		if verb == "start" && strings.Contains(unit, "gpu0") {
			return errors.New("its GPU is gone")
		}
		return nil
	}
	_, err := f.apply(&more)
	if err == nil || !strings.Contains(err.Error(), "its GPU is gone") {
		t.Errorf("error %v", err)
	}
	is := f.systemd.state()
	for _, slot := range []string{"gpu0", "gpu1"} {
		if n := is.Stops["kbnode-agent@"+slot+".service"]; n != 1 {
			t.Errorf("%s was told to stop %d times", slot, n)
		}
	}
	if is.Active["kbnode-agent@gpu1.service"] == "" {
		t.Error("gpu1 does not run, because gpu0 does not")
	}
	f.systemd.fail = nil
	f.mustApply(t, &more)
	f.checkRunning(t, &more)
}

// rollingFixture is a machine that runs the first set, and a new one that is to come
// slot by slot.
func rollingFixture(t *testing.T) (f *fixture, next resource.Set) {
	f = newFixture(t)
	f.mustApply(t, &f.first)
	next = f.set("version: 1 # new\n", "gpu0", "gpu1")
	next.Rolling = true
	return f, next
}

func agents(running map[string]string) (n int) {
	for name := range running {
		if strings.HasPrefix(name, "kbnode-agent@") {
			n++
		}
	}
	return n
}

func TestARollingApplyStopsOneAgentAtATime(t *testing.T) {
	f, next := rollingFixture(t)
	var order []string
	f.machine.Step = func(what string) error {
		if n := agents(f.running()); n < 1 {
			t.Errorf("%s: %d agents run, want at least 1", what, n)
		}
		if strings.HasPrefix(what, "before st") {
			order = append(order, strings.TrimPrefix(what, "before "))
		}
		return nil
	}
	f.mustApply(t, &next)
	want := []string{
		"stop kbnode-agent@gpu0.service", "start kbnode-agent@gpu0.service", "stop kbnode-agent@gpu1.service", "start kbnode-agent@gpu1.service",
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("what stops and starts (-want +got):\n%s", diff)
	}
	f.checkRunning(t, &next)
}

// Cut between two slots, a rolling apply goes on with the second, and undo goes back.
func TestARollingApplyGoesOnWhereItWasCut(t *testing.T) {
	for _, undo := range []bool{false, true} {
		f, next := rollingFixture(t)
		f.machine.Step = func(what string) error {
			if what == "before stop kbnode-agent@gpu1.service" {
				return errCrash
			}
			return nil
		}
		if _, err := f.apply(&next); !errors.Is(err, errCrash) {
			t.Fatalf("Apply = %v, want a crash", err)
		}
		f.machine.Step = nil
		if undo {
			f.mustUndo(t)
			if n := agents(f.running()); n > 0 {
				t.Errorf("after undo %d agents run, want none", n)
			}
			continue
		}
		f.mustApply(t, &next)
		f.checkRunning(t, &next)
		if n := f.systemd.state().Stops["kbnode-agent@gpu0.service"]; n != 1 {
			t.Errorf("gpu0 was stopped %d times, want once", n)
		}
	}
}

// A slot that does not start with the new files ends a rolling apply, so that the
// others work on.
func TestARollingApplyEndsAtASlotThatDoesNotStart(t *testing.T) {
	f, next := rollingFixture(t)
	f.systemd.fail = func(verb, unit string) error {
		if verb == "start" && strings.Contains(unit, "gpu0") {
			return errors.New("its preflight fails")
		}
		return nil
	}
	if _, err := f.apply(&next); err == nil || !strings.Contains(err.Error(), "its preflight fails; the slots after it run as before") {
		t.Errorf("Apply = %v", err)
	}
	if n := f.systemd.state().Stops["kbnode-agent@gpu1.service"]; n != 0 {
		t.Errorf("gpu1 was stopped %d times, want never", n)
	}
	f.systemd.fail = nil
	f.mustApply(t, &next)
	f.checkRunning(t, &next)
}

// A slot that vanished leaves nothing, and the other one is not touched.
func TestVanishedSlot(t *testing.T) {
	f := newFixture(t)
	f.mustApply(t, &f.first)
	f.write(t, "var/lib/kbnode/slots/gpu1/tmp/left", "1")
	less := f.set("version: 1\n", strings.Repeat("a", 40), "gpu0")
	lines := map[string]int{}
	o := allLeave
	o.Log = func(line string) { lines[line]++ }
	if _, err := Apply(t.Context(), f.machine, &less, o); err != nil {
		t.Fatal(err)
	}
	if n := lines["remove file /etc/systemd/system/kbnode-gpu1.slice"]; n != 1 {
		t.Errorf("the removal of the slice's file is logged %d times, want once", n)
	}
	for name, line := range tree(t, f.machine.Root) {
		if !strings.HasPrefix(name, "var/lib/kbnode/ledger") && strings.Contains(name+line, "gpu1") {
			t.Errorf("left: %s %s", name, line)
		}
	}
	if n := f.systemd.state().Stops["kbnode-agent@gpu0.service"]; n != 0 {
		t.Errorf("gpu0 was stopped %d times", n)
	}
	f.checkRunning(t, &less)
}

// A slice ends what is in it: the agent has to have ended its job before.
func TestSlicesStopLast(t *testing.T) {
	f := newFixture(t)
	f.mustApply(t, &f.first)
	less := f.set("version: 1\n", strings.Repeat("a", 40), "gpu0")
	f.mustApply(t, &less)
	f.mustUndo(t)
	is := f.systemd.state()
	for _, unit := range []string{"kbnode-gpu0.slice", "kbnode-gpu1.slice"} {
		if is.Stops[unit] != 1 {
			t.Errorf("%s was stopped %d times", unit, is.Stops[unit])
		}
	}
}

// Whoever has to undo once more can: the program goes last.
func TestUndoRemovesItselfLast(t *testing.T) {
	f := newFixture(t)
	f.mustApply(t, &f.first)
	f.machine.Step = func(what string) error {
		last := what == "before undoing /usr/bin/kbnode" || strings.HasPrefix(what, "before the end of ")
		if !last && !exists(filepath.Join(f.machine.Root, "usr/bin/kbnode")) {
			t.Errorf("%s, kbnode is gone", what)
		}
		return nil
	}
	f.mustUndo(t)
	if exists(filepath.Join(f.machine.Root, "usr/bin/kbnode")) {
		t.Error("kbnode is still there")
	}
}

func TestOneApplyAtATime(t *testing.T) {
	f := newFixture(t)
	f.machine.Step = func(string) error {
		_, err := Undo(context.Background(), fixtureAt(f.dir).machine, Options{}, false)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("held by kbnode apply, process %d", os.Getpid())) {
			t.Errorf("an Undo beside the Apply: %v", err)
		}
		f.machine.Step = nil
		return nil
	}
	f.mustApply(t, &f.first)
	if _, err := os.Lstat(filepath.Join(f.machine.Root, lockPath)); err == nil {
		t.Error("the lock is still there")
	}
}

// A program that is not the right one is not installed.
func TestSources(t *testing.T) {
	f := newFixture(t)
	f.first.Copies[0].SHA256 = strings.Repeat("0", 64)
	if _, err := f.apply(&f.first); err == nil || !strings.Contains(err.Error(), "got SHA-256") {
		t.Errorf("error %v", err)
	}
	if content, err := os.ReadFile(filepath.Join(f.machine.Root, "usr/bin/agent")); err != nil || string(content) != "an old one" {
		t.Errorf("the program is %q, %v", content, err)
	}
}

// A ledger that another kbnode wrote is left alone.
func TestForeignLedger(t *testing.T) {
	for _, journal := range []string{"{\"version\":7}\n", "{\"version\":1}\nnot a record\n"} {
		f := newFixture(t)
		f.mustApply(t, &f.first)
		f.write(t, strings.TrimPrefix(journalPath, "/"), journal)
		before := tree(t, f.machine.Root)
		if _, err := f.apply(&f.second); err == nil || !strings.Contains(err.Error(), journalPath) {
			t.Errorf("Apply: %v", err)
		}
		if _, err := Undo(t.Context(), f.machine, Options{}, false); err == nil {
			t.Error("Undo found nothing wrong")
		}
		if diff := cmp.Diff(before, tree(t, f.machine.Root)); diff != "" {
			t.Errorf("changed (-before +after):\n%s", diff)
		}
	}
}

// Adopting stops older agents, tightens their files, and is kept by later applies.
func TestAdopt(t *testing.T) {
	f := newFixture(t)
	f.first.Off, f.first.Units = nil, f.first.Units[1:]
	cfg := "etc/buildkite-agent/buildkite-agent-gpu0.cfg"
	if err := os.MkdirAll(filepath.Join(f.machine.Root, filepath.Dir(cfg)), 0o755); err != nil {
		t.Fatal(err)
	}
	f.write(t, cfg, "name=\"gpu-0\"\ntoken=\"bkct_old\"\n")
	if err := os.Chmod(filepath.Join(f.machine.Root, cfg), 0o644); err != nil {
		t.Fatal(err)
	}
	before, ran := tree(t, f.machine.Root), f.running()
	seeds, err := f.machine.Seeds()
	if err != nil {
		t.Fatal(err)
	}
	file := resource.File{Path: "/" + cfg, Mode: 0o600, Owner: "root", Group: "root", Content: []byte("name=\"gpu-0\"\ntoken=\"bkct_old\"\n"), Secret: true, Foreign: true}
	if diff := cmp.Diff(&Seeds{Units: []string{oldAgent}, Tokens: []resource.File{file}, Token: []byte("bkct_old")}, seeds); diff != "" {
		t.Fatalf("Seeds (-want +got):\n%s", diff)
	}
	want := resource.Set{Off: seeds.Units, Files: seeds.Tokens}
	for i := range 2 {
		did, err := Apply(t.Context(), f.machine, &want, Options{Adopt: true, Partial: true})
		if err != nil || (len(did) > 0) != (i == 0) {
			t.Fatalf("adopting, time %d: %v, %v", i+1, did, err)
		}
	}
	is := f.systemd.state()
	if _, runs := is.Active[oldAgent]; runs || exists(f.systemd.link(oldAgent)) || !strings.HasPrefix(tree(t, f.machine.Root)[cfg], "-rw------- ") {
		t.Errorf("after adopting: running %t, enabled %t, %s", runs, exists(f.systemd.link(oldAgent)), tree(t, f.machine.Root)[cfg])
	}
	f.first.Off, f.first.Files = want.Off, append(f.first.Files, want.Files...)
	f.mustApply(t, &f.first)
	f.mustUndo(t)
	f.checkEqual(t, before, ran)
}

// The agent's own package and a token file of the vendor's are not seeds; the file that
// an older script wrote is.
func TestSeedsLeaveTheStockPackageAlone(t *testing.T) {
	for content, want := range map[string]string{
		"bkct_of-the-vendor\n": "", "BUILDKITE_AGENT_TOKEN=bkct_seed\n": "bkct_seed",
	} {
		f := newFixture(t)
		if err := os.MkdirAll(filepath.Join(f.machine.Root, "etc/buildkite-agent"), 0o755); err != nil {
			t.Fatal(err)
		}
		f.write(t, "etc/buildkite-agent/buildkite-agent.cfg", "token=\"bkct_stock\"\n")
		f.write(t, "etc/systemd/system/buildkite-agent.service", "[Service]\n")
		f.write(t, "etc/buildkite-agent/token", content)
		seeds, err := f.machine.Seeds()
		if err != nil {
			t.Fatal(err)
		}
		if string(seeds.Token) != want || (len(seeds.Tokens) > 0) != (want != "") || !slices.Equal(seeds.Units, []string{oldAgent}) {
			t.Errorf("with token file %q, Seeds = token %q, %d token files, units %v; want token %q, units [%s]", content, seeds.Token, len(seeds.Tokens), seeds.Units, want, oldAgent)
		}
	}
}

// Whatever a machine is asked to be, one after the other: the second apply of each
// does nothing, and undo brings back what was there.
func TestAnySets(t *testing.T) {
	testAnySets(t, 15)
}

func TestSlowAnySets(t *testing.T) {
	testenv.NeedSlow(t)
	testAnySets(t, 60)
}

func testAnySets(t *testing.T, seeds uint64) {
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		f := newFixture(t)
		before, ran := tree(t, f.machine.Root), f.running()
		for range 1 + r.IntN(4) {
			s := f.anySet(r)
			for _, u := range s.Units {
				f.systemd.uses[u.Name] = u.Uses
			}
			if r.IntN(3) == 0 {
				n := 1 + r.IntN(40)
				f.machine.Step = func(string) error {
					if n--; n == 0 {
						return errCrash
					}
					return nil
				}
				if _, err := f.apply(&s); err != nil && !errors.Is(err, errCrash) {
					t.Fatalf("seed %d: %v", seed, err)
				}
				f.machine.Step = nil
				continue
			}
			f.mustApply(t, &s)
			if again := f.mustApply(t, &s); len(again) > 0 {
				t.Fatalf("seed %d: the second Apply did %+v", seed, again)
			}
			f.checkSet(t, &s)
		}
		f.mustUndo(t)
		if f.checkEqual(t, before, ran); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// anySet is some of a set, with content of its own.
func (f *fixture) anySet(r *rand.Rand) resource.Set {
	slots := []string{"gpu0", "gpu1", "gpu2", "cpu0"}
	r.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
	s := f.set(fmt.Sprintf("version: %d\n", r.IntN(3)), slots[:r.IntN(5)]...)
	some := func(n int) int { return max(0, n-r.IntN(3)) }
	s.Copies = s.Copies[:some(len(s.Copies))]
	units := s.Files[4:] // without them nothing starts
	s.Files = slices.Concat(s.Files[:some(4)], units)
	for i := range s.Files {
		if r.IntN(4) == 0 && s.Files[i].Marked {
			s.Files[i].Mode = 0o640
		}
	}
	return s
}

// checkSet checks that what a set names is there.
func (f *fixture) checkSet(t *testing.T, s *resource.Set) {
	t.Helper()
	for _, file := range s.Files {
		content, err := os.ReadFile(filepath.Join(f.machine.Root, file.Path))
		if err != nil || string(content) != string(file.Bytes()) {
			t.Errorf("%s is %q, %v", file.Path, content, err)
		}
	}
	for _, u := range s.Units {
		if _, runs := f.running()[u.Name]; !runs {
			t.Errorf("%s does not run", u.Name)
		}
	}
}
