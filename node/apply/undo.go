package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/node/system"
)

// Undo makes the machine what it was before the first Apply. With purge, what slots
// have written goes as well. It reports whether there was anything to undo.
//
// Errors: a [Refusal], when nothing was changed. After any other error, Undo
// goes on where it ended.
func Undo(ctx context.Context, m *Machine, o Options, purge bool) (bool, error) {
	unlock, err := m.Lock("undo")
	if err != nil {
		return false, err
	}
	defer unlock()
	w := &work{m: m, options: o}
	if w.ledger, err = m.readLedger(); err != nil {
		return false, err
	}
	defer w.ledger.close()
	if len(w.ledger.things) == 0 {
		w.purge(ctx, purge)
		return false, w.closeLedger(purge)
	}
	if err := w.ledger.sweep(); err != nil {
		return true, err
	}
	if w.have, err = m.observe(ctx, &resource.Set{}, w.ledger); err != nil {
		return true, err
	}
	if w.accounts, err = m.accounts(); err != nil {
		return true, err
	}
	if conflicts := w.changedByHand(); len(conflicts) > 0 && !o.Force {
		return true, &Refusal{conflicts}
	}
	if err := w.undo(ctx, purge); err != nil {
		return true, err
	}
	return true, w.closeLedger(purge)
}

// changedByHand lists what is neither as kbnode left it nor as it was before.
func (w *work) changedByHand() []resource.Conflict {
	var all []resource.Conflict
	for _, t := range w.ledger.things {
		have, ok := w.have.Nodes[t.Name]
		if !ok || len(t.wrote) == 0 || t.Kind == resource.KindFile && resource.Returnable(t.Name, have.Content) {
			continue
		}
		if is := have.Fingerprint(); slices.Contains(t.wrote, is) || is == t.Prior.fingerprint() {
			continue
		}
		why := "changed by hand since kbnode wrote it"
		if resource.Merged(t.Name) {
			why += ", and no longer valid JSON: correct it, or restore the earlier content"
		}
		all = append(all, resource.Conflict{Kind: t.Kind, Name: t.Name, Why: why, Flag: resource.FlagForce})
	}
	return all
}

// undo goes backwards: units stop, then everything is as it was, then what ran
// before runs again. The program itself goes last.
func (w *work) undo(ctx context.Context, purge bool) error {
	if err := w.all(ctx, w.toStop()); err != nil {
		return err
	}
	w.purge(ctx, purge)
	var self []*thing
	for _, t := range slices.Backward(w.ledger.things) {
		switch {
		case isUnit(t.Kind):
		case t.Kind == resource.KindCopy && t.Name == w.m.Self:
			self = append(self, t)
		default:
			if err := w.undoThing(ctx, t, purge); err != nil {
				return err
			}
		}
	}
	if err := w.m.step("before the reload"); err != nil {
		return err
	}
	if err := w.m.Systemd.Reload(ctx); err != nil {
		return err
	}
	if err := w.tidyRun(); err != nil {
		return err
	}
	if err := w.all(ctx, w.toStart()); err != nil {
		return err
	}
	for _, t := range self {
		if err := w.undoThing(ctx, t, purge); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) purge(ctx context.Context, purge bool) {
	if purge && w.options.Purge != nil {
		w.options.Purge(ctx)
	}
}

func isUnit(kind string) bool { return kind == resource.KindUnit || kind == resource.KindOff }

// eachUnit calls f with the units of the ledger, and adds what it says is to be
// done with them.
func (w *work) eachUnit(actions []resource.Action, f func(t *thing, is resource.UnitState) (verb string)) []resource.Action {
	for _, t := range w.ledger.things {
		if !isUnit(t.Kind) {
			continue
		}
		if verb := f(t, w.have.Units[t.Name]); verb != "" {
			actions = append(actions, resource.Action{Kind: t.Kind, Verb: verb, Name: t.Name, Drain: t.Drain, Asks: t.Asks})
		}
	}
	return actions
}

// toStop are the units that did not run or were not enabled before.
func (w *work) toStop() (actions []resource.Action) {
	for _, drain := range []bool{true, false} { // slices last: their end would be that of containers
		actions = w.eachUnit(actions, func(t *thing, is resource.UnitState) string {
			if t.Drain == drain && is.Active && !t.Prior.Active && !t.Asks {
				return resource.Stop
			}
			return ""
		})
	}
	return w.eachUnit(actions, func(t *thing, is resource.UnitState) string {
		if is.Found && is.Enabled && !t.Prior.Enabled {
			return resource.Disable
		}
		return ""
	})
}

// toStart are the units that ran or were enabled before, and docker, if its
// settings were not its own.
func (w *work) toStart() []resource.Action {
	actions := w.eachUnit(nil, func(t *thing, is resource.UnitState) string {
		if !is.Enabled && t.Prior.Enabled {
			return resource.Enable
		}
		return ""
	})
	return w.eachUnit(actions, func(t *thing, is resource.UnitState) string {
		stale := slices.ContainsFunc(t.Uses, func(name string) bool { return w.ledger.find(resource.KindFile, name) != nil })
		switch {
		case t.Asks && is.Active && stale && w.options.DockerRestart:
			return resource.Restart
		case t.Asks && is.Active && stale:
			w.log("%s still runs with kbnode's settings until it restarts: systemctl restart %s, when it suits you", t.Name, t.Name)
		case !is.Active && t.Prior.Active:
			return resource.Start
		}
		return ""
	})
}

func (w *work) undoThing(ctx context.Context, t *thing, purge bool) error {
	if err := w.m.step("before undoing " + t.Name); err != nil {
		return err
	}
	verb := resource.Remove
	if !t.Prior.Absent {
		verb = resource.Restore
	}
	w.log("%s %s %s", verb, t.Kind, t.Name)
	if err := w.giveBack(ctx, t, purge); err != nil {
		return fmt.Errorf("undoing %s %s: %w", t.Kind, t.Name, err)
	}
	return nil
}

// tidyRun removes the directories that systemd made for sockets and leaves. What
// else lies in /run/kbnode is another service's.
func (w *work) tidyRun() error {
	run := w.m.path(node.RunDir)
	entries, err := os.ReadDir(run)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(run, e.Name())
		if err := os.Remove(filepath.Join(dir, "docker.sock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if _, err := w.m.removeDir(dir); err != nil {
			return err
		}
	}
	_, err = w.m.removeDir(run)
	return err
}

// giveBack makes one thing what it was before. With purge, a directory goes with
// what others wrote there.
func (w *work) giveBack(ctx context.Context, t *thing, purge bool) error {
	name := w.m.path(t.Name)
	if resource.Merged(t.Name) {
		if done, err := w.unmerge(t); done || err != nil {
			return err
		}
	}
	switch {
	case t.Kind == resource.KindUser && t.Prior.Absent:
		return w.m.Users.Remove(ctx, t.Name)
	case t.Kind == resource.KindUser:
		return nil
	case t.Kind == resource.KindDir && t.Prior.Absent:
		return w.giveBackDir(t, purge)
	case t.Kind == resource.KindDir:
		return w.m.setDir(name, t.Prior.Mode, t.Prior.UID, t.Prior.GID)
	case t.Prior.Absent:
		return w.m.remove(name)
	case t.Prior.Type == "link":
		return w.m.setLink(name, t.Prior.Target)
	}
	before := w.m.path(priorDir + "/" + t.Prior.SHA256)
	return w.m.installFrom(before, name, t.Prior.SHA256, t.Prior.Mode, t.Prior.UID, t.Prior.GID)
}

// unmerge removes kbnode's key from a file of the vendor's. It reports false if nothing
// else in the file has changed, so that the caller restores the old bytes.
func (w *work) unmerge(t *thing) (done bool, err error) {
	name := w.m.path(t.Name)
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	var before []byte
	if !t.Prior.Absent {
		if before, err = os.ReadFile(w.m.path(priorDir + "/" + t.Prior.SHA256)); err != nil {
			return false, err
		}
	}
	old, _ := resource.CDI(before) // which apply could read
	current, err := resource.CDI(content)
	if err != nil && w.options.Force {
		return false, nil
	}
	if err != nil || string(current) != "true" { // without an error: the vendor removed the key
		return true, err
	}
	rest, err := resource.SetCDI(content, old)
	if err != nil {
		return false, err
	}
	if first, err := resource.SetCDI(before, old); err != nil || bytes.Equal(rest, first) {
		return false, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return false, err
	}
	uid, gid := system.Owner(info)
	return true, w.m.install(name, bytes.NewReader(rest), resource.Hash(rest), permissions(info.Mode()), uid, gid)
}

// giveBackDir removes a directory. One that somebody wrote to stays, and is
// root's then, as its user goes.
func (w *work) giveBackDir(t *thing, purge bool) error {
	name := w.m.path(t.Name)
	// Nobody but kbnode and its slots writes there. The vendor's own files may lie in
	// /etc/kbnode.
	managed := strings.HasPrefix(t.Name, ledgerOwn+"/") || t.Name == node.RunDir || strings.HasPrefix(t.Name, node.RunDir+"/")
	if purge && managed || t.Name == node.DisksDir { // a slot's disk begins anew with each mount
		return w.m.remove(name)
	}
	kept, err := w.m.removeDir(name)
	if err != nil || !kept || t.Name == ledgerOwn {
		return err
	}
	w.log("kept %s, for it is not empty", t.Name)
	info, err := os.Lstat(name)
	if err != nil || !info.IsDir() {
		return err
	}
	if uid, _ := system.Owner(info); uid == 0 {
		return nil
	}
	return w.m.setDir(name, 0o700, 0, 0)
}

// closeLedger ends the ledger: the journal first, without which the rest is
// nothing.
func (w *work) closeLedger(purge bool) error {
	w.ledger.close()
	if !w.m.NoSync {
		unix.Sync() // what systemd and useradd wrote
	}
	for _, name := range []string{journalPath, node.LedgerDir} {
		if err := w.m.step("before the end of " + name); err != nil {
			return err
		}
		if err := os.RemoveAll(w.m.path(name)); err != nil {
			return err
		}
	}
	own := w.m.path(ledgerOwn)
	if _, err := os.Lstat(own); err != nil {
		return nil
	}
	if purge {
		return w.m.remove(own)
	}
	if _, err := w.m.removeDir(own); err != nil {
		return err
	}
	return w.m.syncDir(filepath.Dir(own))
}
