package runner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-mode/kbgen/runner/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

// boxed prepares a box for single commands, and the place that they may write.
func boxed(t *testing.T, environ []string) (*sandbox.Box, sandbox.Place) {
	t.Helper()
	dir := t.TempDir()
	p := sandbox.Place{Dir: filepath.Join(dir, "phase")}
	p.Work, p.Home, p.Temp = filepath.Join(p.Dir, "work"), filepath.Join(p.Dir, "home"), filepath.Join(p.Dir, "tmp")
	own := filepath.Join(dir, "box")
	for _, d := range []string{own, p.Dir, p.Work, p.Home, p.Temp} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	box, err := sandbox.Open(sandbox.Options{Dir: own, Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := box.Prepare(p); err != nil {
		t.Fatal(err)
	}
	return box, p
}
