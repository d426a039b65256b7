// Package image decides which image runs where a slot's step names a reference:
// it pulls a reference beside running jobs, tries the image, and then writes its ID
// into the pins, which the proxies read at each container. Nothing is restarted,
// and a job that runs keeps what it has. Two images of a reference stay on the
// machine, the one that runs and the one before.
//
// It pulls an image by its digest, which the reference or the vendor's queue file
// has, and by a tag alone only if the vendor allows it. It knows no slots.
package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/docker"
)

// Tagged is the repository whose tags keep docker from pruning pinned images as unused;
// the tag is the beginning of the ID.
const Tagged = "kbnode/pinned"

// SmokeCommand is what an image must be able to do: what a step does first.
var SmokeCommand = []string{"/bin/sh", "-e", "-c", "exec kbrun doctor --allow-weak-sandbox"}

// A Manager keeps the pins of a machine.
type Manager struct {
	Engine *docker.Client
	Root   string // below which [node.PinsPath] lies, "/"
	// Digests and AllowTags are the config's.
	Digests   map[string]string
	AllowTags bool
	// LeastFree is how much room the engine's disk must have before a pull, in bytes.
	LeastFree int64
	Smoke     []string // SmokeCommand, but in tests
	Now       func() time.Time
	Log       func(format string, args ...any)
}

// errBusy says that another process changes the pins.
var errBusy = errors.New("another kbnode image is at work")

// change calls f with the pins and writes what it leaves of them. Nobody else
// changes them meanwhile: [errBusy].
func (m *Manager) change(f func(*node.Pins) error) error {
	path := filepath.Join(m.Root, node.PinsPath)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // which unlocks it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return errBusy
	} else if err != nil {
		return fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	pins, err := node.ReadPins(m.Root)
	if err != nil {
		return err
	}
	failed := f(pins) // what it did before it failed is done
	body, err := yaml.Marshal(pins)
	if err == nil {
		err = renameio.WriteFile(path, body, 0o644, renameio.IgnoreUmask())
	}
	return errors.Join(failed, err)
}

// reference is what a container's image may be called: never the beginning of an
// option, of a path or of a query.
var reference = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9_./:-]{0,200}(@sha256:[0-9a-f]{64})?$`)

// update finds the reference's image, tries it, and pins it. It reports whether another image runs from now on. An
// image that does not work changes nothing. Held keeps an image that rollback went
// back from where it is.
func (m *Manager) update(ctx context.Context, ref string, local, held bool) (changed bool, err error) {
	if !reference.MatchString(ref) {
		return false, fmt.Errorf("image: got %q, want name:tag or name@sha256:…", ref)
	}
	err = m.change(func(pins *node.Pins) error {
		got, err := m.find(ctx, ref, local)
		if err != nil {
			return err
		}
		old := pins.Images[ref]
		switch {
		case got.ID == old.ID:
			return nil
		case held && got.ID == old.Held:
			m.Log("%s: %s stays where it is: kbnode image rollback went back from it, kbnode image update %s takes it again", ref, Short(got.ID), ref)
			return nil
		}
		if err := m.take(ctx, pins, ref, got, local); err != nil {
			return err
		}
		changed = true
		m.Log("%s: %s runs from the next job on", ref, Short(got.ID))
		return nil
	})
	return changed, err
}

// UpdateEach updates references, which must be among those in all, and goes on after
// one that fails. It reports whether one has an image now that had none before. Local
// and held are those of [Manager.update]; with held, an image that was loaded by hand
// is looked for with the engine only, because no registry has it.
func (m *Manager) UpdateEach(ctx context.Context, all []Status, refs []string, local, held bool) (first bool, err error) {
	var faults []error
	for _, ref := range refs {
		at := slices.IndexFunc(all, func(s Status) bool { return s.Reference == ref })
		if at < 0 {
			faults = append(faults, node.Usagef("image %q: no slot's step may name it, have %q", ref, References(all)))
			continue
		}
		now := all[at]
		byHand := held && now.ID != "" && now.Digest == ""
		changed, err := m.update(ctx, ref, local || byHand, held)
		faults = append(faults, err)
		if err == nil && !changed {
			m.Log("%s: nothing to do", ref)
		}
		first = first || changed && now.ID == ""
	}
	return first, errors.Join(faults...)
}

// take tries an image and pins it. One that does not work is left to Collect if it
// was pulled, and the pin stays.
func (m *Manager) take(ctx context.Context, pins *node.Pins, ref string, got description, local bool) error {
	old := pins.Images[ref]
	if err := m.try(ctx, got); err != nil {
		if old.ID != "" && !local && !slices.Contains(append(old.Old, old.Previous), got.ID) {
			old.Old = append(old.Old, got.ID)
			pins.Images[ref] = old
		}
		return fmt.Errorf("image %s: %s is not used: %w", ref, Short(got.ID), err)
	}
	if err := m.keep(ctx, got.ID); err != nil {
		return err
	}
	pin := node.Pin{ID: got.ID, Previous: old.ID, At: m.Now().UTC().Truncate(time.Second), Old: old.Old}
	if !local {
		pin.Digest = got.digest(ref)
	}
	if old.Previous != "" && old.Previous != got.ID {
		pin.Old = append(pin.Old, old.Previous)
	}
	pin.Old = slices.DeleteFunc(pin.Old, func(id string) bool { return id == got.ID })
	pins.Images[ref] = pin
	return nil
}

// Rollback runs the image before again, and keeps the present one as the one before.
func (m *Manager) Rollback(ctx context.Context, ref string) error {
	return m.change(func(pins *node.Pins) error {
		pin, ok := pins.Images[ref]
		switch {
		case !ok:
			return fmt.Errorf("image %s: none is pinned", ref)
		case pin.Previous == "":
			return fmt.Errorf("image %s: there was none before %s", ref, Short(pin.ID))
		}
		got, err := m.inspect(ctx, pin.Previous)
		if err != nil {
			return fmt.Errorf("image %s: the one before, %s: %w", ref, Short(pin.Previous), err)
		}
		pin.ID, pin.Previous, pin.Held = pin.Previous, pin.ID, pin.ID
		pin.Digest, pin.At = got.digest(ref), m.Now().UTC().Truncate(time.Second)
		pins.Images[ref] = pin
		m.Log("%s: %s runs from the next job on, as before", ref, Short(pin.ID))
		return nil
	})
}

// Collect removes the images that kbnode pulled and that no reference needs any
// more: what came before the image before, and those of references that are in no
// slot. An image that somebody else uses stays, and is looked at again.
func (m *Manager) Collect(ctx context.Context, refs []string) (removed []string, err error) {
	err = m.change(func(pins *node.Pins) error {
		var orphans []string
		for ref, pin := range pins.Images {
			if slices.Contains(refs, ref) {
				continue
			}
			orphans = append(orphans, pin.Old...)
			if pin.Digest != "" { // else somebody loaded it
				orphans = append(orphans, pin.ID, pin.Previous)
			}
			delete(pins.Images, ref)
		}
		needed := map[string]bool{"": true}
		for _, pin := range pins.Images {
			needed[pin.ID], needed[pin.Previous] = true, true
		}
		var faults []error
		gone := func(id string) bool {
			if needed[id] {
				return false
			}
			ok, err := m.remove(ctx, id)
			faults = append(faults, err)
			if ok {
				removed = append(removed, id)
			}
			return ok
		}
		for ref, pin := range pins.Images {
			pin.Old = slices.DeleteFunc(pin.Old, gone)
			pins.Images[ref] = pin
		}
		for _, id := range orphans {
			gone(id)
		}
		return errors.Join(faults...)
	})
	for _, id := range removed {
		m.Log("removed image %s", Short(id))
	}
	return removed, err
}

// remove removes an image unless a container or another name has it.
func (m *Manager) remove(ctx context.Context, id string) (bool, error) {
	for _, name := range []string{Tagged + ":" + Short(id), id} {
		err := m.Engine.Do(ctx, http.MethodDelete, "/images/"+name, nil, nil, nil)
		switch {
		case docker.Is(err, http.StatusConflict):
			m.Log("%s stays: it is in use", Short(id))
			return false, nil
		case err != nil && !docker.Is(err, http.StatusNotFound):
			return false, fmt.Errorf("removing image %s: %w", Short(id), err)
		}
	}
	return true, nil
}

// keep gives an image a name of ours, so that no prune takes it.
func (m *Manager) keep(ctx context.Context, id string) error {
	err := m.Engine.Do(ctx, http.MethodPost, "/images/"+id+"/tag", url.Values{"repo": {Tagged}, "tag": {Short(id)}}, nil, nil)
	if err != nil {
		return fmt.Errorf("naming image %s: %w", Short(id), err)
	}
	return nil
}

// Short is the beginning of an image's ID, as docker shows it.
func Short(id string) string {
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(12, len(id))]
}
