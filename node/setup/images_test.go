package setup

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	nodeconfig "github.com/gpu-mode/kbgen/node"
)

// writePins sets up a machine with an image from a registry and one loaded by hand.
func writePins(t *testing.T, socket string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, content := range map[string]string{
		nodeconfig.ConfigPath: "version: 1\ndocker: {socket: " + socket + "}\n",
		nodeconfig.PinsPath: `version: 1
images:
  runner:1: {id: "sha256:aaaaaaaaaaaaaaaa", digest: "runner@sha256:1", previous: "sha256:bbbbbbbbbbbbbbbb"}
  byhand:1: {id: "sha256:cccccccccccccccc"}
`,
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// A purge removes pulled images with their tags, and the tag alone of an image that
// was loaded by hand.
func TestPurgeRemovesPulledImagesAndTags(t *testing.T) {
	dir, err := os.MkdirTemp("", "kb") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	gone := map[string]bool{}
	engine := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := r.Method + " " + r.URL.Path
		if gone[call] {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		gone[call] = true
		got = append(got, call)
	})}}
	engine.Start()
	defer engine.Close()
	var log strings.Builder
	ImageRemover(writePins(t, socket), func(format string, args ...any) { fmt.Fprintf(&log, format+"\n", args...) })(t.Context())
	want := []string{
		"DELETE /images/kbnode/pinned:aaaaaaaaaaaa", "DELETE /images/kbnode/pinned:bbbbbbbbbbbb", "DELETE /images/kbnode/pinned:cccccccccccc",
		"DELETE /images/sha256:aaaaaaaaaaaaaaaa", "DELETE /images/sha256:bbbbbbbbbbbbbbbb",
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || strings.Contains(log.String(), "stay") {
		t.Errorf("calls (-want +got):\n%slog:\n%s", diff, log.String())
	}
}

// Without docker a purge names the images that stay.
func TestPurgeWithoutDockerNamesTheImages(t *testing.T) {
	var log strings.Builder
	ImageRemover(writePins(t, "/nonexistent/docker.sock"), func(format string, args ...any) { fmt.Fprintf(&log, format+"\n", args...) })(t.Context())
	if want := "to remove them: docker image rm aaaaaaaaaaaa bbbbbbbbbbbb cccccccccccc"; !strings.Contains(log.String(), want) {
		t.Errorf("log:\n%swant %q in it", log.String(), want)
	}
}
