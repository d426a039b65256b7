package dockertest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A Registry is one on loopback that engines pull from.
type Registry struct {
	t    testing.TB
	Addr string // "127.0.0.1:1234", the first part of a reference

	mu    sync.Mutex
	blobs map[string][]byte // by digest
	tags  map[string]string // digest of a manifest by "name:tag"
}

const manifestType = "application/vnd.docker.distribution.manifest.v2+json"

// NewRegistry starts a registry that ends with the test.
func NewRegistry(t testing.TB) *Registry {
	r := &Registry{t: t, blobs: map[string][]byte{}, tags: map[string]string{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.Addr = strings.TrimPrefix(server.URL, "http://")
	return r
}

func (r *Registry) put(blob []byte) string {
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(blob))
	r.blobs[digest] = blob
	return digest
}

// Push makes name:tag an image that holds files, with a config's settings, and
// returns its ID.
func (r *Registry) Push(name, tag string, files map[string][]byte, settings map[string]any) string {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	layer := pack(r.t, nil, files)
	diff := r.put(layer)
	marshal := func(v any) []byte {
		raw, err := json.Marshal(v)
		if err != nil {
			r.t.Fatal(err)
		}
		return raw
	}
	config := marshal(map[string]any{"architecture": "amd64", "os": "linux", "config": settings, "rootfs": map[string]any{"type": "layers", "diff_ids": []string{diff}}})
	id := r.put(config)
	manifest := marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": map[string]any{"mediaType": "application/vnd.docker.container.image.v1+json", "size": len(config), "digest": id},
		"layers": []any{map[string]any{"mediaType": "application/vnd.docker.image.rootfs.diff.tar", "size": len(layer), "digest": diff}},
	})
	r.tags[name+":"+tag] = r.put(manifest)
	return id
}

// Digest is that of the manifest of name:tag.
func (r *Registry) Digest(name, tag string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tags[name+":"+tag]
}

func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, "/v2/")
	r.mu.Lock()
	defer r.mu.Unlock()
	if path == "" {
		return
	}
	name, ref, manifest := strings.Cut(path, "/manifests/")
	if manifest {
		w.Header().Set("Content-Type", manifestType)
		if digest, ok := r.tags[name+":"+ref]; ok {
			ref = digest
		}
	} else {
		_, ref, _ = strings.Cut(path, "/blobs/")
	}
	blob, ok := r.blobs[ref]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`)
		return
	}
	w.Header().Set("Docker-Content-Digest", ref)
	w.Header().Set("Content-Length", fmt.Sprint(len(blob)))
	if req.Method != http.MethodHead {
		_, _ = w.Write(blob)
	}
}

// pack makes an archive of directories, by their modes, and of programs.
func pack(t testing.TB, dirs map[string]int64, programs map[string][]byte) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	var err error
	for path, mode := range dirs {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeDir, Mode: mode}))
	}
	for path, body := range programs {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(body))}))
		_, err2 := w.Write(body)
		err = errors.Join(err, err2)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}
