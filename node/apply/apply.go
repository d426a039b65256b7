package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node/resource"
)

// Options say what Apply has leave for.
type Options struct {
	Adopt         bool // to change what somebody else put there
	Force         bool // to change what was changed by hand
	DockerRestart bool // to restart what others use
	// Drain bounds the wait for agents that end their jobs; 0: as long as their units
	// let them.
	Drain time.Duration
	// Partial: the Set is not all that is wanted. Nothing vanishes.
	Partial bool
	Log     func(string) // a line for each thing that is done; nil: none
	// Purge is called by an Undo with purge, before the slots' data go; nil: nothing else
	// goes.
	Purge func(context.Context)
}

// A Refusal lists what stands in the way. Nothing was changed.
type Refusal struct {
	Conflicts []resource.Conflict
}

func (e *Refusal) Error() string {
	lines := make([]string, len(e.Conflicts))
	for i, c := range e.Conflicts {
		lines[i] = c.String()
	}
	return "nothing was changed, for this is not kbnode's to change:\n  " + strings.Join(lines, "\n  ")
}

// work is one run of Apply or Undo.
type work struct {
	m        *Machine
	ledger   *ledger
	accounts *accounts
	options  Options
	have     resource.State
	rolling  bool // the Set's
}

func (w *work) log(format string, args ...any) {
	if w.options.Log != nil {
		w.options.Log(fmt.Sprintf(format, args...))
	}
}

// Apply makes a machine what the Set says, and returns what it did; nothing where
// nothing was to be done.
//
// Errors: a [Refusal] and those of the checks before, when nothing was
// changed; a [StartError], when all was done. After any other error, Apply goes on
// where it ended, and Undo goes back.
func Apply(ctx context.Context, m *Machine, want *resource.Set, o Options) ([]resource.Action, error) {
	unlock, err := m.Lock("apply")
	if err != nil {
		return nil, err
	}
	defer unlock()
	w := &work{m: m, options: o, rolling: want.Rolling}
	if w.ledger, err = m.readLedger(); err != nil {
		return nil, err
	}
	defer w.ledger.close()
	if err := w.ledger.sweep(); err != nil {
		return nil, err
	}
	if w.have, err = m.observe(ctx, want, w.ledger); err != nil {
		return nil, err
	}
	actions, conflicts := compare(want, w.have, o)
	if refused := o.Refused(actions, conflicts); len(refused) > 0 {
		return nil, &Refusal{refused}
	}
	if len(actions) == 0 {
		return nil, nil
	}
	if err := m.verify(ctx, want, actions); err != nil {
		return nil, err
	}
	if w.accounts, err = m.accounts(); err != nil {
		return nil, err
	}
	if err := w.notePending(actions); err != nil {
		return nil, err
	}
	if err := w.all(ctx, actions); err != nil {
		return actions, err
	}
	if len(w.ledger.pending) > 0 { // of units that are wanted no longer
		return actions, w.ledger.write(&record{Cleared: slices.Clone(w.ledger.pending)})
	}
	return actions, nil
}

// compare is resource.Compare for a Set that may not be all.
func compare(want *resource.Set, have resource.State, o Options) ([]resource.Action, []resource.Conflict) {
	if !o.Partial {
		return resource.Compare(*want, have)
	}
	names := map[string]bool{}
	for _, f := range want.Files {
		names[f.Path] = true
	}
	have.Made = slices.DeleteFunc(slices.Clone(have.Made), func(m resource.Made) bool { return !names[m.Name] })
	return resource.Compare(*want, have)
}

// Refused are the conflicts that the options give no leave for.
func (o Options) Refused(actions []resource.Action, conflicts []resource.Conflict) []resource.Conflict {
	rest := slices.DeleteFunc(slices.Clone(conflicts), func(c resource.Conflict) bool {
		return c.Flag == resource.FlagAdopt && o.Adopt || c.Flag == resource.FlagForce && o.Force
	})
	for _, a := range actions {
		if a.Asks && !o.DockerRestart {
			rest = append(rest, resource.Conflict{
				Kind: a.Kind, Name: a.Name, Flag: "--allow-docker-restart",
				Why: fmt.Sprintf("would %s (%s)%s", a.Verb, a.Why, a.Impact()),
			})
		}
	}
	return rest
}

// notePending records the reloads and restarts that must follow once the first file has
// changed. It records docker's state too, because docker reads its changed files if the
// machine boots before kbnode restarts docker.
func (w *work) notePending(actions []resource.Action) error {
	var follow []string
	for _, a := range actions {
		if u, ok := a.Want().(resource.Unit); ok && u.Asks {
			if err := w.noteUnit(&a); err != nil {
				return err
			}
		}
		switch {
		case a.Verb == resource.Reload:
			follow = append(follow, resource.KindReload)
		case a.Verb == resource.Restart, w.rolling && a.Verb == resource.Stop && a.Want() != nil:
			follow = append(follow, a.Name)
		}
	}
	follow = slices.DeleteFunc(follow, func(s string) bool { return slices.Contains(w.ledger.pending, s) })
	if len(follow) == 0 {
		return nil
	}
	return w.ledger.write(&record{Pending: follow})
}

// all does one action after the other; neighbours that are units, at once. Units
// that do not start keep no other from it.
func (w *work) all(ctx context.Context, actions []resource.Action) error {
	var faults []error
	for len(actions) > 0 {
		n := 1
		for n < len(actions) && together(&actions[0], &actions[n]) {
			n++
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		what := actions[0].Verb + " " + actions[0].Name
		if err := w.m.step("before " + what); err != nil {
			return err
		}
		for _, a := range actions[:n] {
			w.log("%s", a.Line())
		}
		if err := w.do(ctx, actions[:n]); err != nil {
			if _, ok := errors.AsType[*StartError](err); !ok {
				return errors.Join(append(faults, fmt.Errorf("%s: %w", what, err))...)
			}
			if w.rolling {
				return fmt.Errorf("%s: %v; the slots after it run as before", what, err)
			}
			faults = append(faults, err)
		}
		if err := w.m.step("after " + what); err != nil {
			return err
		}
		actions = actions[n:]
	}
	return errors.Join(faults...)
}

// A StartError is that units do not start. All else was done, and others run.
type StartError struct{ error }

func (e *StartError) Unwrap() error { return e.error }

// together reports whether two actions are one call of systemd's.
func together(a, b *resource.Action) bool {
	return isUnit(a.Kind) && isUnit(b.Kind) && a.Verb == b.Verb && a.Asks == b.Asks && a.Verb != resource.Remove && (a.Verb != resource.Stop || a.Drain == b.Drain)
}

func (w *work) do(ctx context.Context, actions []resource.Action) error {
	a := &actions[0]
	switch a.Kind {
	case resource.KindUnit, resource.KindOff:
		if a.Verb == resource.Remove {
			return w.ledger.write(&record{Kind: a.Kind, Name: a.Name, Gone: true})
		}
		return w.units(ctx, actions)
	case resource.KindReload:
		if err := w.m.Systemd.Reload(ctx); err != nil {
			return err
		}
		return w.clearPending(resource.KindReload)
	}
	if a.Verb == resource.Remove || a.Verb == resource.Restore {
		if err := w.giveBack(ctx, w.ledger.find(a.Kind, a.Name), true); err != nil {
			return err
		}
		return w.ledger.write(&record{Kind: a.Kind, Name: a.Name, Gone: true})
	}
	return w.make(ctx, a)
}

func (w *work) clearPending(names ...string) error {
	names = slices.DeleteFunc(names, func(s string) bool { return !slices.Contains(w.ledger.pending, s) })
	if len(names) == 0 {
		return nil
	}
	return w.ledger.write(&record{Cleared: names})
}

// noteUnit notes how a unit was before kbnode touched it.
func (w *work) noteUnit(a *resource.Action) error {
	state := w.have.Units[a.Name]
	r := record{Kind: a.Kind, Name: a.Name, Prior: &prior{Absent: !state.Found, Enabled: state.Found && state.Enabled, Active: state.Active}, Drain: a.Drain, Asks: a.Asks}
	if u, ok := a.Want().(resource.Unit); ok {
		r.Uses, r.Drain, r.Asks = u.Uses, u.Drain, u.Asks
	}
	if t := w.ledger.find(a.Kind, a.Name); t != nil && r.Uses == nil {
		return nil // wanted no longer: what it was stands in the ledger
	}
	return w.ledger.note(r)
}

// units does one call of systemd's.
func (w *work) units(ctx context.Context, actions []resource.Action) error {
	var names []string
	for i := range actions {
		names = append(names, actions[i].Name)
		if err := w.noteUnit(&actions[i]); err != nil {
			return err
		}
	}
	verb := actions[0].Verb
	if verb == resource.Stop {
		return w.stop(ctx, names)
	}
	err := w.m.Systemd.Do(ctx, verb, names)
	if verb != resource.Start && verb != resource.Restart {
		return err
	}
	if err != nil {
		return &StartError{err}
	}
	return w.clearPending(names...)
}

// stop waits for jobs as long as it may.
func (w *work) stop(ctx context.Context, names []string) error {
	waiting := ctx
	if w.options.Drain > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, w.options.Drain)
		defer cancel()
	}
	err := w.m.Systemd.Do(waiting, resource.Stop, names)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("still at work after %s: they take no new job, and end after theirs; try again then", w.options.Drain)
	}
	return err
}
