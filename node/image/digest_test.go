package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/node"
)

// An engine is a docker engine with a registry behind it; any trial succeeds.
type engine struct {
	registry map[string]description // by the reference that is pulled
	images   map[string]description
	pulled   []string
	trial    string // the last request for a container
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ref := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/images/"), "/json")
	switch {
	case r.URL.Path == "/info":
		fmt.Fprint(w, `{"DockerRootDir": "/"}`)
	case r.URL.Path == "/images/create":
		ref := r.URL.Query().Get("fromImage")
		e.pulled = append(e.pulled, ref)
		e.images[ref] = e.registry[ref]
	case r.URL.Path == "/containers/json":
		fmt.Fprint(w, `[]`)
	case r.URL.Path == "/containers/create":
		body, _ := io.ReadAll(r.Body)
		e.trial = string(body)
		fmt.Fprint(w, `{"Id": "trial"}`)
	case strings.HasPrefix(r.URL.Path, "/containers/"):
		fmt.Fprint(w, `{"StatusCode": 0}`)
	case r.Method == http.MethodGet && e.images[ref].ID != "":
		_ = json.NewEncoder(w).Encode(e.images[ref])
	case r.Method == http.MethodGet:
		http.NotFound(w, r)
	}
}

// manager returns one of a machine with this engine.
func (e *engine) manager(t *testing.T) *Manager {
	t.Helper()
	e.images = map[string]description{}
	socket := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: e}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return manager(t, socket)
}

const ref = "registry.dev/runner:1"

// digestOf is a digest, and the image that the registry has for it.
func digestOf(letter string) (string, description) {
	digest := "sha256:" + strings.Repeat(letter, 64)
	return digest, description{ID: "sha256:id" + letter, RepoDigests: []string{"registry.dev/runner@" + digest}}
}

func TestImagesArePulledByDigest(t *testing.T) {
	one, imageOne := digestOf("1")
	two, imageTwo := digestOf("2")
	e := &engine{registry: map[string]description{ref: imageTwo, "registry.dev/runner@" + one: imageOne, "registry.dev/runner@" + two: imageTwo}}
	m := e.manager(t)
	m.Digests = map[string]string{ref: one}
	m.AllowTags = true // of other images
	for _, want := range []bool{true, false} {
		if changed, err := m.update(t.Context(), ref, false, true); err != nil || changed != want {
			t.Errorf("update: changed %t, %v; want %t", changed, err, want)
		}
	}
	if pin := m.pin(t, ref); pin.ID != imageOne.ID || pin.Digest != "registry.dev/runner@"+one || !slices.Equal(e.pulled, []string{"registry.dev/runner@" + one}) {
		t.Errorf("pin %+v after the pulls %q, want one pull by digest", pin, e.pulled)
	}
	// An image is tried beside jobs that are measured.
	if !strings.Contains(e.trial, `"CgroupParent":"kbnode.slice"`) || !strings.Contains(e.trial, `"CpuShares":2`) {
		t.Errorf("the trial's container is %s, want one with the least weight in kbnode.slice", e.trial)
	}
	m.Digests[ref] = two
	if changed, err := m.update(t.Context(), ref, false, true); err != nil || !changed || m.pin(t, ref).ID != imageTwo.ID || m.pin(t, ref).Previous != imageOne.ID {
		t.Errorf("update to another digest: changed %t, %v; pin %+v", changed, err, m.pin(t, ref))
	}
	own := "registry.dev/runner:1@" + one
	if changed, err := m.update(t.Context(), own, false, false); err != nil || !changed || m.pin(t, own).ID != imageOne.ID {
		t.Errorf("update of a reference with a digest: changed %t, %v; pin %+v", changed, err, m.pin(t, own))
	}
}

func TestImageWithAnotherDigestIsRefused(t *testing.T) {
	one, _ := digestOf("1")
	_, imageTwo := digestOf("2")
	e := &engine{registry: map[string]description{"registry.dev/runner@" + one: imageTwo}}
	m := e.manager(t)
	m.Digests = map[string]string{ref: one}
	if changed, err := m.update(t.Context(), ref, false, false); changed || err == nil || !strings.Contains(err.Error(), "got an image with the digests") || m.pin(t, ref).ID != "" {
		t.Errorf("update: changed %t, %v; pin %+v", changed, err, m.pin(t, ref))
	}
}

func TestTagsArePulledOnlyIfAllowed(t *testing.T) {
	_, image := digestOf("1")
	e := &engine{registry: map[string]description{ref: image}}
	m := e.manager(t)
	changed, err := m.update(t.Context(), ref, false, false)
	hint, _ := errors.AsType[*node.HintError](err)
	if changed || hint == nil || !strings.Contains(hint.Hint, `{reference: "registry.dev/runner:1", digest: `) || !strings.Contains(hint.Hint, "allow_tags: true") || len(e.pulled) > 0 {
		t.Errorf("update: changed %t, %v with the hint %v, pulled %q; want the two ways out and no pull", changed, err, hint, e.pulled)
	}
	m.AllowTags = true
	if changed, err := m.update(t.Context(), ref, false, false); err != nil || !changed || !slices.Equal(e.pulled, []string{ref}) {
		t.Errorf("update with tags allowed: changed %t, %v, pulled %q", changed, err, e.pulled)
	}
}

func TestLoadedImagesNeedNoDigest(t *testing.T) {
	_, image := digestOf("1")
	image.RepoDigests = nil
	e := &engine{}
	m := e.manager(t)
	e.images[ref] = image
	if changed, err := m.update(t.Context(), ref, true, false); err != nil || !changed {
		t.Fatalf("update: changed %t, %v", changed, err)
	}
	// The daily timer asks no registry for it.
	statuses := []Status{{Reference: ref, ID: image.ID}}
	if first, err := m.UpdateEach(t.Context(), statuses, []string{ref}, false, true); err != nil || first || len(e.pulled) > 0 {
		t.Errorf("UpdateEach: first %t, %v, pulled %q", first, err, e.pulled)
	}
}
