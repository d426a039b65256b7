package resource

import (
	"slices"
	"strings"
	"testing"
)

// set is a small node: one slot with what it needs.
func set() Set {
	return Set{
		Users:  []User{{Name: "kbagent-gpu0", Home: "/var/lib/kbnode/slots/gpu0"}},
		Dirs:   []Dir{{Path: "/etc/kbnode", Mode: 0o755, Owner: "root", Group: "root"}},
		Copies: []Copy{{Path: "/usr/bin/agent", From: "/tmp/agent", SHA256: strings.Repeat("a", 64), Mode: 0o755}},
		Files: []File{
			{Path: "/etc/kbnode/slots.yml", Mode: 0o644, Owner: "root", Group: "root", Content: []byte("version: 1\n"), Marked: true},
			{Path: "/etc/kbnode/token", Mode: 0o600, Owner: "root", Group: "root", Content: []byte("hush"), Secret: true},
			{Path: "/etc/docker/daemon.json", Mode: 0o644, Owner: "root", Group: "root", Content: []byte("{}\n"), Foreign: true},
			{Path: "/etc/systemd/system/kbnode-agent@.service", Mode: 0o644, Owner: "root", Group: "root", Content: []byte("[Service]\n"), Marked: true},
		},
		Units: []Unit{
			{Name: "docker.service", Active: true, Uses: []string{"/etc/docker/daemon.json"}, Asks: true},
			{Name: "kbnode-agent@gpu0.service", Enabled: true, Active: true, Drain: true, Uses: []string{"/etc/kbnode/slots.yml"}},
			{Name: "kbnode-watch.timer", Enabled: true, Active: true, Uses: []string{"/etc/kbnode/slots.yml"}},
		},
		Off: []string{"buildkite-agent-gpu0.service"},
	}
}

// done is the state of a machine after all that a set asks for.
func done(s *Set) State {
	is := State{Users: map[string]bool{}, Nodes: map[string]Node{}, Units: map[string]UnitState{}}
	made := func(kind, name string, n Node) {
		is.Nodes[name] = n
		is.Made = append(is.Made, Made{Kind: kind, Name: name, Absent: true, Wrote: []string{n.Fingerprint()}})
	}
	for _, u := range s.Users {
		is.Users[u.Name] = true
		is.Made = append(is.Made, Made{Kind: KindUser, Name: u.Name, Absent: true})
	}
	for _, name := range []string{"/etc", "/etc/docker", "/etc/systemd/system", "/usr/bin", "/var/lib", "/var/lib/kbnode/plugins"} {
		is.Nodes[name] = Node{Type: "dir", Mode: 0o755, Owner: "root", Group: "root"}
	}
	for _, d := range s.Dirs {
		made(KindDir, d.Path, Node{Type: "dir", Mode: d.Mode, Owner: d.Owner, Group: d.Group})
	}
	for _, p := range s.Copies {
		made(KindCopy, p.Path, Node{Type: "file", Mode: p.Mode, Owner: "root", Group: "root", SHA256: p.SHA256})
	}
	for _, f := range s.Files {
		made(KindFile, f.Path, Node{Type: "file", Mode: f.Mode, Owner: f.Owner, Group: f.Group, Content: f.Bytes(), SHA256: Hash(f.Bytes())})
	}
	for _, u := range s.Units {
		is.Units[u.Name] = UnitState{Found: true, Enabled: u.Enabled, Active: u.Active}
		is.Made = append(is.Made, Made{Kind: KindUnit, Name: u.Name, Absent: true, Drain: u.Drain})
	}
	return is
}

// lines are the actions in short.
func lines(actions []Action) []string {
	var all []string
	for _, a := range actions {
		all = append(all, a.Kind+" "+a.Verb+" "+a.Name)
	}
	return all
}

func TestFromNothing(t *testing.T) {
	s := set()
	have := State{Units: map[string]UnitState{"docker.service": {Found: true, Active: true}, "buildkite-agent-gpu0.service": {Found: true, Enabled: true, Active: true}}}
	actions, conflicts := Compare(s, have)
	want := []string{
		"off stop buildkite-agent-gpu0.service", "off disable buildkite-agent-gpu0.service",
		"user make kbagent-gpu0", "dir make /etc", "dir make /etc/kbnode",
		"dir make /usr", "dir make /usr/bin", "copy make /usr/bin/agent",
		"file make /etc/kbnode/slots.yml", "file make /etc/kbnode/token",
		"dir make /etc/docker", "file make /etc/docker/daemon.json",
		"dir make /etc/systemd", "dir make /etc/systemd/system", "file make /etc/systemd/system/kbnode-agent@.service",
		"unit enable kbnode-agent@gpu0.service", "unit enable kbnode-watch.timer", "reload reload systemd",
		"unit restart docker.service", "unit start kbnode-agent@gpu0.service", "unit start kbnode-watch.timer",
	}
	if got := lines(actions); !slices.Equal(got, want) {
		t.Errorf("Compare:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(conflicts) != 1 || conflicts[0].Kind != KindOff || conflicts[0].Flag != FlagAdopt {
		t.Errorf("conflicts: %v, want one of the old agent", conflicts)
	}
	for _, a := range actions {
		if strings.Contains(a.Diff, "hush") {
			t.Errorf("a secret is shown: %+v", a)
		}
		if a.Name == "/etc/kbnode/slots.yml" && !strings.Contains(a.Diff, "+version: 1\n") {
			t.Errorf("diff of %s: %q", a.Name, a.Diff)
		}
	}
}

func TestNothingToDo(t *testing.T) {
	s := set()
	if actions, conflicts := Compare(s, done(&s)); len(actions)+len(conflicts) > 0 {
		t.Errorf("Compare with what is there = %v, %v", lines(actions), conflicts)
	}
}

// One change to a machine that is as it should be, and what follows from it.
func TestChanges(t *testing.T) {
	stop, start := "unit stop kbnode-agent@gpu0.service", "unit start kbnode-agent@gpu0.service"
	timer := "unit restart kbnode-watch.timer"
	for name, c := range map[string]struct {
		change    func(*Set, *State)
		actions   []string
		conflicts []string
	}{
		"a new config": {
			func(s *Set, _ *State) { s.Files[0].Content = []byte("version: 2\n") },
			[]string{stop, "file change /etc/kbnode/slots.yml", timer, start}, nil,
		},
		"changed by hand": {
			func(_ *Set, have *State) { write(have, "/etc/kbnode/slots.yml", "mine\n") },
			[]string{stop, "file change /etc/kbnode/slots.yml", timer, start}, []string{"/etc/kbnode/slots.yml --force"},
		},
		"ours of another time, ledger lost": {
			func(_ *Set, have *State) {
				write(have, "/etc/kbnode/slots.yml", string(mark([]byte("old\n"))))
				have.Made = nil
			},
			[]string{stop, "file change /etc/kbnode/slots.yml", timer, start}, nil,
		},
		"somebody else's": {
			func(_ *Set, have *State) {
				write(have, "/etc/kbnode/token", "theirs")
				have.Made = nil
			},
			[]string{"file change /etc/kbnode/token"}, []string{"/etc/kbnode/token --adopt"},
		},
		"a mode": {
			func(_ *Set, have *State) {
				n := have.Nodes["/etc/kbnode/token"]
				n.Mode = 0o644
				have.Nodes["/etc/kbnode/token"] = n
			},
			[]string{"file change /etc/kbnode/token"}, nil,
		},
		"docker": {
			func(_ *Set, have *State) { write(have, "/etc/docker/daemon.json", "{\"a\":1}\n") },
			[]string{stop, "file change /etc/docker/daemon.json", "unit restart docker.service", start}, nil,
		},
		"a unit file": {
			func(s *Set, _ *State) { s.Files[3].Content = []byte("[Unit]\n") },
			[]string{"file change /etc/systemd/system/kbnode-agent@.service", "reload reload systemd"}, nil,
		},
		"a file in place of a directory": {
			func(_ *Set, have *State) { write(have, "/etc/kbnode", "") },
			nil, []string{"/etc/kbnode "},
		},
		"left over": {
			func(_ *Set, have *State) { have.Pending = []string{KindReload, "docker.service"} },
			[]string{stop, "reload reload systemd", "unit restart docker.service", start}, nil,
		},
		"a paused agent": {
			func(_ *Set, have *State) {
				have.Units["kbnode-agent@gpu0.service"] = UnitState{Found: true, Enabled: true, Held: true}
			},
			nil, nil,
		},
		"a unit that cannot be enabled": {
			func(_ *Set, have *State) {
				have.Units["kbnode-watch.timer"] = UnitState{Found: true, Static: true, Active: true}
			},
			nil, nil,
		},
		"an agent that died": {
			func(_ *Set, have *State) {
				have.Units["kbnode-agent@gpu0.service"] = UnitState{Found: true, Enabled: true}
			},
			[]string{start}, nil,
		},
		"a slot that vanished": {
			func(s *Set, _ *State) { s.Users, s.Units = nil, s.Units[:1] },
			[]string{
				stop, "unit stop kbnode-watch.timer", "unit disable kbnode-agent@gpu0.service", "unit disable kbnode-watch.timer",
				"reload reload systemd",
				"user remove kbagent-gpu0", "unit remove kbnode-agent@gpu0.service", "unit remove kbnode-watch.timer",
			}, nil,
		},
		"a program that vanished, changed to a link by hand": {
			func(s *Set, have *State) {
				s.Copies = nil
				have.Nodes["/usr/bin/agent"] = Node{Type: "link", Target: "elsewhere"}
			},
			[]string{"copy remove /usr/bin/agent"}, []string{"/usr/bin/agent --force"},
		},
		"a user that is gone": {
			func(_ *Set, have *State) { delete(have.Users, "kbagent-gpu0") },
			[]string{"user make kbagent-gpu0"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := set()
			have := done(&s)
			c.change(&s, &have)
			actions, conflicts := Compare(s, have)
			if got := lines(actions); !slices.Equal(got, c.actions) {
				t.Errorf("actions:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.actions, "\n"))
			}
			var got []string
			for _, c := range conflicts {
				got = append(got, c.Name+" "+c.Flag)
			}
			if !slices.Equal(got, c.conflicts) {
				t.Errorf("conflicts %q, want %q", got, c.conflicts)
			}
		})
	}
}

func write(have *State, name, content string) {
	n := have.Nodes[name]
	n.Type, n.Content, n.SHA256 = "file", []byte(content), Hash([]byte(content))
	have.Nodes[name] = n
}

// Directories of the vendor's that kbnode has a file in keep mode and owner.
func TestDirectoriesOfTheVendorStayAsTheyAre(t *testing.T) {
	for _, name := range []string{"/etc/docker", "/etc/cdi"} {
		s := Set{Dirs: []Dir{{Path: name, Mode: 0o755, Owner: "root", Group: "root"}}}
		have := State{Nodes: map[string]Node{"/etc": {Type: "dir"}, name: {Type: "dir", Mode: 0o700, Owner: "root", Group: "adm"}}}
		if actions, _ := Compare(s, have); len(actions) > 0 {
			t.Errorf("Compare for %s of mode 0700 = %+v, want nothing to do", name, actions)
		}
	}
}
