package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/internal/dockertest"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/docker"
)

func manager(t *testing.T, socket string) *Manager {
	return &Manager{
		Engine: docker.New(socket), Root: t.TempDir(), Smoke: []string{"/probe", "status=CapEff"}, Log: t.Logf,
		Now: func() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) },
	}
}

func (m *Manager) pin(t *testing.T, ref string) node.Pin {
	t.Helper()
	pins, err := node.ReadPins(m.Root)
	if err != nil {
		t.Fatal(err)
	}
	return pins.Images[ref]
}

// An image goes from a registry to the pins, and back, on a real engine.
func TestDockerImages(t *testing.T) {
	e, registry := dockertest.Start(t, os.Getenv(dockertest.Variable)), dockertest.NewRegistry(t)
	m := manager(t, e.Socket())
	m.AllowTags = true
	probe, err := os.ReadFile(dockertest.Program(t, "probe", "../proxy/testdata/probe/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	push := func(version string, files map[string][]byte, settings map[string]any) string {
		files["version"] = []byte(version)
		return registry.Push("runner", "1", files, settings)
	}
	ref := registry.Addr + "/runner:1"
	update := func(held bool) bool {
		t.Helper()
		changed, err := m.update(t.Context(), ref, false, held)
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	has := func(id string) bool { return e.Command("image", "inspect", id).Run() == nil }

	one := push("one", map[string][]byte{"probe": probe}, nil)
	if !update(false) || update(false) {
		t.Error("the first update changes something, the second nothing")
	}
	if got, want := m.pin(t, ref), (node.Pin{ID: one, Digest: registry.Addr + "/runner@" + registry.Digest("runner", "1"), At: m.Now()}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("pin %+v, want %+v", got, want)
	}

	for want, broken := range map[string]func(){
		`ends with 3: said`: func() {
			push("broken", map[string][]byte{"probe": probe}, nil)
			m.Smoke = []string{"/probe", "say=said", "exit=3"}
		},
		"its trial: the engine says 400": func() { push("empty", map[string][]byte{}, nil) },
		"it declares volumes": func() {
			push("volumes", map[string][]byte{"probe": probe}, map[string]any{"Volumes": map[string]any{"/data": map[string]any{}}})
		},
		`GiB of free disk, want 1048576: kbnode image`: func() { m.LeastFree = 1 << 50 }, // nothing is pulled
	} {
		smoke, least := m.Smoke, m.LeastFree
		broken()
		changed, err := m.update(t.Context(), ref, false, false)
		if err == nil || changed || !strings.Contains(err.Error(), want) || m.pin(t, ref).ID != one {
			t.Errorf("changed %t, %v; want %q and the pin as it was", changed, err, want)
		}
		m.Smoke, m.LeastFree = smoke, least
	}
	if removed, err := m.Collect(t.Context(), []string{ref}); err != nil || len(removed) != 3 || !has(one) {
		t.Errorf("removed %q, %v; want the three that did not work", removed, err)
	}
	if left := e.Run("ps", "--all", "--quiet"); left != "" {
		t.Errorf("containers are left: %s", left)
	}
	if _, err := m.update(t.Context(), registry.Addr+"/runner:none", false, false); err == nil || !strings.Contains(err.Error(), "pulling "+registry.Addr+"/runner:none: ") {
		t.Errorf("a tag that is none: %v", err)
	}
	if _, err := m.update(t.Context(), "nobody/has:this", true, false); err == nil || !strings.Contains(err.Error(), "the engine has none: docker load") {
		t.Errorf("an image that is not here: %v", err)
	}

	two := push("two", map[string][]byte{"probe": probe}, nil)
	if !update(false) || m.pin(t, ref).Previous != one {
		t.Errorf("pin %+v, want previous %s", m.pin(t, ref), one)
	}
	if err := m.Rollback(t.Context(), ref); err != nil || m.pin(t, ref).ID != one || m.pin(t, ref).Previous != two {
		t.Errorf("rollback: %v, pin %+v", err, m.pin(t, ref))
	}
	if update(true) {
		t.Error("the timer takes what rollback went back from")
	}
	if !update(false) || m.pin(t, ref).ID != two || m.pin(t, ref).Held != "" {
		t.Errorf("asked for, it is taken: pin %+v", m.pin(t, ref))
	}
	three := push("three", map[string][]byte{"probe": probe}, nil)
	if !update(true) {
		t.Error("a new image is not taken")
	}
	// Image one is used by a container of the vendor's first.
	e.Run("create", "--name", "vendors", one, "/probe")
	if removed, err := m.Collect(t.Context(), []string{ref}); err != nil || len(removed) > 0 || !has(one) {
		t.Errorf("removed %q, %v; want none: one is in use", removed, err)
	}
	e.Run("rm", "vendors")
	removed, err := m.Collect(t.Context(), []string{ref})
	if err != nil || !slices.Equal(removed, []string{one}) || has(one) || !has(two) || !has(three) {
		t.Errorf("removed %q, %v; want %s alone", removed, err, one)
	}
	e.Run("image", "prune", "--force")
	if !has(two) || !has(three) {
		t.Error("a prune took a pinned image")
	}

	s := Status{ID: three}
	if err := m.Status(t.Context(), &s); err != nil || !s.Present || s.Bytes == 0 {
		t.Errorf("status: %+v, %v", s, err)
	}
	s = Status{ID: one}
	if err := m.Status(t.Context(), &s); err != nil || s.Present {
		t.Errorf("status of an image that is gone: %+v, %v", s, err)
	}
	// What the vendor loaded is the vendor's; what no slot names is not needed.
	local := e.Import("loaded:1", dockertest.Program(t, "probe", "../proxy/testdata/probe/main.go"))
	if changed, err := m.update(t.Context(), "loaded:1", true, false); err != nil || !changed || m.pin(t, "loaded:1").Digest != "" {
		t.Errorf("local: changed %t, %v, pin %+v", changed, err, m.pin(t, "loaded:1"))
	}
	if _, err := m.Collect(t.Context(), nil); err != nil || has(two) || has(three) || !has(local) {
		t.Errorf("no slot names any: %v; there: two %t, three %t, want neither; loaded %t", err, has(two), has(three), has(local))
	}
}

// Two at once would each undo what the other did.
func TestOneAtATime(t *testing.T) {
	m := manager(t, "/nonexistent")
	err := m.change(func(*node.Pins) error { return m.Rollback(t.Context(), "x:1") })
	if !errors.Is(err, errBusy) {
		t.Errorf("a change within a change: %v, want ErrBusy", err)
	}
	if err := m.Rollback(t.Context(), "x:1"); err == nil || err.Error() != "image x:1: none is pinned" {
		t.Errorf("afterwards: %v", err)
	}
}

// Anyone may read the pins, whatever the umask, and they are replaced whole.
func TestPinsFile(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	m := manager(t, "/nonexistent")
	path := filepath.Join(m.Root, node.PinsPath)
	if err := m.change(func(p *node.Pins) error { p.Images["a:1"] = node.Pin{ID: "sha256:1"}; return nil }); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil || before.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v; want 0644", before.Mode(), err)
	}
	if err := m.change(func(p *node.Pins) error { p.Images["b:1"] = node.Pin{ID: "sha256:2"}; return errors.New("half") }); err == nil || err.Error() != "half" {
		t.Errorf("got %v", err)
	}
	after, err := os.Stat(path)
	if err != nil || os.SameFile(before, after) {
		t.Errorf("it was written in place, %v", err)
	}
	if m.pin(t, "a:1").ID != "sha256:1" || m.pin(t, "b:1").ID != "sha256:2" {
		t.Error("pins are lost")
	}
}

func TestReferences(t *testing.T) {
	for ref, want := range map[string]string{
		"python": "python", "python:3": "python", "localhost:5000/a/b": "localhost:5000/a/b", "localhost:5000/a/b:1": "localhost:5000/a/b",
		"ghcr.io/a/b@sha256:" + strings.Repeat("a", 64): "ghcr.io/a/b", "ghcr.io/a/b:1@sha256:" + strings.Repeat("a", 64): "ghcr.io/a/b",
	} {
		if got := name(ref); got != want || !reference.MatchString(ref) {
			t.Errorf("name(%q) = %q, want %q", ref, got, want)
		}
	}
	for _, ref := range []string{"", "-x", "/x", "a b", "a@sha256:1", "a?b=c", "a#b", "../x"} {
		if _, err := manager(t, "/nonexistent").update(t.Context(), ref, true, false); err == nil || !strings.HasPrefix(err.Error(), "image: got ") {
			t.Errorf("Update(%q): %v, want that it is none", ref, err)
		}
	}
}
