package resource

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/gpu-mode/kbgen/node"
)

// comparison is one run of Compare.
type comparison struct {
	want      Set
	have      State
	made      map[string]*Made // by kind and name
	wanted    map[string]bool  // by kind and name
	changed   map[string]bool  // paths that change
	unitFiles bool             // one of systemd's changes
	conflicts []Conflict

	make, stops, disables, removes, last, enables, starts, rolling []Action

	restarts []Action // of a slot's units, for when its agent is stopped; Rolling only
}

func key(kind, name string) string { return kind + " " + name }

// Compare says what has to be done so that a machine has what it should, in the
// order in which it has to be: units that must not run meanwhile are stopped,
// what is wanted no longer goes, users, directories and files are made, systemd
// reads its files again, units start. What the conflicts forbid is among the
// actions: who has leave for them may do all.
func Compare(want Set, have State) ([]Action, []Conflict) {
	c := &comparison{want: want, have: have, made: map[string]*Made{}, wanted: map[string]bool{}, changed: map[string]bool{}}
	for i := range have.Made {
		c.made[key(have.Made[i].Kind, have.Made[i].Name)] = &have.Made[i]
	}
	c.users()
	c.dirs()
	c.contents()
	c.vanished()
	c.units()
	actions := slices.Concat(c.stops, c.disables, c.removes, c.make, c.enables)
	if c.unitFiles || len(c.disables)+len(c.enables) > 0 || slices.Contains(have.Pending, KindReload) {
		actions = append(actions, Action{Kind: KindReload, Verb: Reload, Name: "systemd"})
	}
	return slices.Concat(actions, c.starts, c.rolling, c.last), c.conflicts
}

func (c *comparison) add(a Action) {
	c.make = append(c.make, a)
	c.touched(a.Name)
}

// touched notes that the content of a path changes.
func (c *comparison) touched(name string) {
	c.changed[name] = true
	if strings.HasPrefix(name, node.UnitDir+"/") {
		c.unitFiles = true
	}
}

func (c *comparison) conflict(kind, name, flag, format string, args ...any) {
	c.conflicts = append(c.conflicts, Conflict{Kind: kind, Name: name, Why: fmt.Sprintf(format, args...), Flag: flag})
}

func (c *comparison) users() {
	for _, u := range c.want.Users {
		c.wanted[key(KindUser, u.Name)] = true
		if made, why := c.made[key(KindUser, u.Name)], c.have.Unfit[u.Name]; why != "" && (made == nil || !made.Absent) {
			c.conflict(KindUser, u.Name, "", "got a user that kbnode did not make, with %s, want one without a login, a password and other groups", why)
		}
		if !c.have.Users[u.Name] {
			c.make = append(c.make, Action{Kind: KindUser, Verb: Make, Name: u.Name, Why: "a system user that cannot log in", want: u})
		}
	}
}

// dirs compares directories, and those that others lie in and nobody named.
func (c *comparison) dirs() {
	for _, d := range c.want.Dirs {
		c.wanted[key(KindDir, d.Path)] = true
	}
	for _, d := range c.want.Dirs {
		c.parents(d.Path)
		c.dir(d)
	}
}

func (c *comparison) dir(d Dir) {
	have, ok := c.have.Nodes[d.Path]
	made := c.made[key(KindDir, d.Path)]
	vendors := (d.Path == path.Dir(node.DaemonJSON) || d.Path == node.CDIDir) && (made == nil || !made.Absent)
	a := Action{Kind: KindDir, Name: d.Path, want: d}
	switch why := differs(have, Node{Mode: d.Mode, Owner: d.Owner, Group: d.Group}); {
	case !ok:
		a.Verb = Make
	case have.Type != "dir":
		c.conflict(KindDir, d.Path, "", "got a %s, want a directory", have.Type)
		return
	case why != "" && !vendors:
		a.Verb, a.Why = Change, why
	default:
		return
	}
	c.make = append(c.make, a)
}

// parents sees to the directories that a path lies in: root's, 0755.
func (c *comparison) parents(name string) {
	parent := path.Dir(name)
	if parent == "/" || c.wanted[key(KindDir, parent)] {
		return
	}
	_, ok := c.have.Nodes[parent]
	if made := c.made[key(KindDir, parent)]; ok && made == nil {
		return
	}
	c.wanted[key(KindDir, parent)] = true
	c.parents(parent)
	c.dir(Dir{Path: parent, Mode: 0o755, Owner: "root", Group: "root"})
}

// differs says what is not as wanted of mode and owner.
func differs(have, want Node) string {
	var why []string
	if have.Mode != want.Mode {
		why = append(why, fmt.Sprintf("mode %s, want %s", octal(have.Mode), octal(want.Mode)))
	}
	if have.Owner != want.Owner || have.Group != want.Group {
		why = append(why, fmt.Sprintf("of %s:%s, want %s:%s", have.Owner, have.Group, want.Owner, want.Group))
	}
	return strings.Join(why, ", ")
}

// contents compares what lies in directories, in the order of the Set.
func (c *comparison) contents() {
	for _, p := range c.want.Copies {
		c.content(KindCopy, p.Path, Node{Type: "file", Mode: p.Mode, Owner: "root", Group: "root", SHA256: p.SHA256}, p)
	}
	for _, f := range c.want.Files {
		content := f.Bytes()
		c.content(KindFile, f.Path, Node{Type: "file", Mode: f.Mode, Owner: f.Owner, Group: f.Group, SHA256: Hash(content), Content: content}, f)
	}
}

func (c *comparison) content(kind, name string, want Node, thing any) {
	c.wanted[key(kind, name)] = true
	c.parents(name)
	have, ok := c.have.Nodes[name]
	if f, isFile := thing.(File); ok && isFile && Merged(name) {
		f.Mode, f.Owner, f.Group = have.Mode, have.Owner, have.Group
		want.Mode, want.Owner, want.Group, thing = have.Mode, have.Owner, have.Group, f
	}
	a := Action{Kind: kind, Name: name, want: thing}
	if !ok {
		a.Verb = Make
		c.add(c.diff(a, have, want))
		return
	}
	if have.Type != want.Type {
		c.conflict(kind, name, "", "got a %s, want a %s: move it away", have.Type, want.Type)
		return
	}
	same := have.Fingerprint() == want.Fingerprint()
	a.Verb, a.Why = Change, differs(have, want)
	switch {
	case same && a.Why == "":
	case same:
		c.make = append(c.make, a)
	default:
		c.mayReplace(kind, name, have, thing)
		c.add(c.diff(a, have, want))
	}
}

// mayReplace notes a conflict where what is there is not ours, or not as we left
// it.
func (c *comparison) mayReplace(kind, name string, have Node, thing any) {
	made := c.made[key(kind, name)]
	f, isFile := thing.(File)
	switch {
	case isFile && f.Foreign:
	case kind == KindFile && Owned(have.Content):
	case made != nil && slices.Contains(made.Wrote, have.Fingerprint()):
	case made != nil || kind == KindFile && Marked(have.Content):
		c.conflict(kind, name, FlagForce, "changed by hand since kbnode wrote it")
	default:
		c.conflict(kind, name, FlagAdopt, "there already, and not kbnode's")
	}
}

// vanished are the things of the ledger that are wanted no longer. What lies on
// others goes first.
func (c *comparison) vanished() {
	for _, m := range slices.Backward(c.have.Made) {
		if c.wanted[key(m.Kind, m.Name)] {
			continue
		}
		a := Action{Kind: m.Kind, Verb: Remove, Name: m.Name, Why: "wanted no longer"}
		if !m.Absent {
			a.Verb = Restore
		}
		switch m.Kind {
		case KindUser, KindDir:
			c.last = append(c.last, a)
		case KindCopy, KindFile:
			if have, ok := c.have.Nodes[m.Name]; ok && !slices.Contains(m.Wrote, have.Fingerprint()) && !(m.Kind == KindFile && Returnable(m.Name, have.Content)) {
				c.conflict(m.Kind, m.Name, FlagForce, "wanted no longer, but changed by hand since kbnode wrote it")
			}
			c.removes = append(c.removes, a)
			c.touched(m.Name)
		}
	}
}

const maxDiffed = 1 << 20

// diff adds to the action what changes in a text.
func (c *comparison) diff(a Action, have, want Node) Action {
	f, ok := a.want.(File)
	switch {
	case !ok:
	case f.Secret:
		a.Diff = "(secret, not shown)\n"
	case !isText(have.Content) || !isText(want.Content):
		a.Diff = "(not text, not shown)\n"
	default:
		a.Diff = changes(a, have.Content, want.Content)
	}
	return a
}

// changes is a unified diff without kbnode's mark. In an agent's configuration each
// line says everything by itself, so that lines around it are left out.
func changes(a Action, have, want []byte) string {
	if a.Verb == Make {
		return udiff.Unified("/dev/null", a.Name, "", string(want))
	}
	have, _, _ = unmark(have)
	want, _, _ = unmark(want)
	around := udiff.DefaultContextLines
	if path.Base(a.Name) == "agent.cfg" {
		around = 0
	}
	diff, err := udiff.ToUnified(a.Name, a.Name, string(have), udiff.Strings(string(have), string(want)), around)
	if err != nil {
		return "(" + err.Error() + ")\n"
	}
	return diff
}

func isText(content []byte) bool {
	return len(content) <= maxDiffed && utf8.Valid(content) && !bytes.ContainsRune(content, 0)
}

// units compares units: those of others that have to be off, those wanted no
// longer, and the wanted ones.
func (c *comparison) units() {
	for _, name := range c.want.Off {
		if is := c.have.Units[name]; is.Found && (is.Active || is.Enabled) {
			c.conflict(KindOff, name, FlagAdopt, "an agent that kbnode did not set up, which would use the same devices")
			c.off(KindOff, name, is, "taken over", true)
		}
	}
	wanted := map[string]bool{}
	for _, u := range c.want.Units {
		wanted[u.Name] = true
	}
	for _, m := range c.have.Made {
		if m.Kind == KindUnit && !wanted[m.Name] {
			is := c.have.Units[m.Name]
			is.Active, is.Enabled = is.Active && !m.Active && !m.Asks, is.Enabled && !m.Enabled // what others use runs on
			c.off(KindUnit, m.Name, is, "wanted no longer", m.Drain)
			c.last = append(c.last, Action{Kind: KindUnit, Verb: Remove, Name: m.Name, Why: "wanted no longer"})
		}
	}
	asks := false
	for _, u := range c.want.Units {
		asks = asks || u.Asks && c.have.Units[u.Name].Active && c.stale(&u) != ""
	}
	c.want.Rolling = c.want.Rolling && !asks
	for _, u := range c.want.Units {
		c.unit(u, asks)
	}
	c.starts = append(c.starts, c.restarts...)
	slices.SortStableFunc(c.starts, func(a, b Action) int { return cmp.Compare(rank(a), rank(b)) })
	// Agents before slices: that of a slice would end their containers.
	slices.SortStableFunc(c.stops, func(a, b Action) int { return cmp.Compare(rank(a), rank(b)) })
}

// rank orders starts: docker before who needs it, restarts before starts. And
// stops: those that wait for jobs first.
func rank(a Action) int {
	switch {
	case a.Asks, a.Verb == Stop && a.Drain:
		return 0
	case a.Verb == Restart:
		return 1
	}
	return 2
}

func (c *comparison) off(kind, name string, is UnitState, why string, drain bool) {
	if is.Active {
		c.stops = append(c.stops, Action{Kind: kind, Verb: Stop, Name: name, Why: why, Drain: drain})
	}
	if is.Enabled {
		c.disables = append(c.disables, Action{Kind: kind, Verb: Disable, Name: name, Why: why})
	}
}

// unit compares one wanted unit. Agents stop before anything changes, for that a
// job sees one state of the machine, and before docker does.
func (c *comparison) unit(u Unit, dockerRestarts bool) {
	is := c.have.Units[u.Name]
	if u.Enabled && !is.Enabled && !is.Static {
		c.enables = append(c.enables, Action{Kind: KindUnit, Verb: Enable, Name: u.Name, want: u})
	}
	why := c.stale(&u)
	if u.Drain && why == "" && dockerRestarts {
		why = "docker restarts"
	}
	if u.Drain && (!is.Active || why == "") { // the restarts before it do not wait for this agent
		c.starts, c.restarts = append(c.starts, c.restarts...), nil
	}
	switch start := (Action{Kind: KindUnit, Verb: Start, Name: u.Name, Why: why, want: u}); {
	case is.Active && why == "":
	case is.Active && u.Drain && c.want.Rolling:
		stop := start
		stop.Verb, stop.Drain = Stop, true
		c.rolling = append(append(append(c.rolling, stop), c.restarts...), start)
		c.restarts = nil
	case is.Active && u.Drain:
		c.stops = append(c.stops, Action{Kind: KindUnit, Verb: Stop, Name: u.Name, Why: why, Drain: true, want: u})
		if u.Active {
			c.starts = append(c.starts, start)
		}
	case is.Active:
		start.Verb, start.Asks = Restart, u.Asks
		if c.want.Rolling {
			c.restarts = append(c.restarts, start)
		} else {
			c.starts = append(c.starts, start)
		}
	case u.Active && !is.Held:
		c.starts = append(c.starts, start)
	}
}

// stale says why a unit that runs has to be restarted; empty: it need not.
func (c *comparison) stale(u *Unit) string {
	for _, name := range u.Uses {
		if c.changed[name] {
			return name + " changes"
		}
	}
	if slices.Contains(c.have.Pending, u.Name) {
		return "left over from an apply that ended early"
	}
	return ""
}
