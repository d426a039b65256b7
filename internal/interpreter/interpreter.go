// Package interpreter finds python3 for tests. Programs do not use it.
package interpreter

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// found asks python3 itself: a version manager's script in its place would triple
// the time of every run.
var found = sync.OnceValue(func() (f struct{ program, path string }) {
	out, err := exec.Command("python3", "-I", "-c", "import os, sys; print(sys.executable, os.environ['PATH'], sep='\\n')").Output()
	if err == nil {
		f.program, f.path, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	}
	return f
})

// Program returns the path of the real interpreter, and skips the test where there
// is none.
func Program(t testing.TB) string {
	t.Helper()
	if found().program == "" {
		t.Skip("python3 is missing")
	}
	return found().program
}

// Path returns a PATH that begins at the real interpreter, and skips the test
// where there is none.
func Path(t testing.TB) string {
	t.Helper()
	return filepath.Dir(Program(t)) + ":" + found().path
}
