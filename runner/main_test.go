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

// isolated prepares a sandbox for single commands, and the directories that
// they may write.
func isolated(t *testing.T, environ []string) (*sandbox.Sandbox, sandbox.Directories) {
	t.Helper()
	dir := t.TempDir()
	p := sandbox.Directories{Dir: filepath.Join(dir, "phase")}
	p.Work, p.Home, p.Temp = filepath.Join(p.Dir, "work"), filepath.Join(p.Dir, "home"), filepath.Join(p.Dir, "tmp")
	own := filepath.Join(dir, "sandbox")
	for _, d := range []string{own, p.Dir, p.Work, p.Home, p.Temp} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sb, err := sandbox.Open(sandbox.Options{Dir: own, Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := sb.Prepare(p); err != nil {
		t.Fatal(err)
	}
	return sb, p
}
