package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// benched is a machine of eight slots. What systemd does is not in the figures.
func benched(b *testing.B) *fixture {
	b.Helper()
	f := fixtureAt(b.TempDir())
	f.machine.NoSync = false
	for name, content := range map[string]string{
		"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "etc/group": "root:x:0:\nrender:x:105:\n", "usr/lib/systemd/system/" + docker: "", "run/x": "",
		"../agent": strings.Repeat("a new agent\n", 500), "../kbnode": "kbnode itself",
	} {
		file := filepath.Join(f.machine.Root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			b.Fatal(err)
		}
	}
	var slots []string
	for i := range 8 {
		slots = append(slots, fmt.Sprintf("gpu%d", i))
	}
	f.first = f.set("version: 1\n", slots...)
	f.first.Off = nil
	return f
}

// An apply of eight slots, each step of it on the disk; and its undo.
func BenchmarkApply(b *testing.B) {
	f := benched(b)
	for b.Loop() {
		if _, err := f.apply(&f.first); err != nil {
			b.Fatal(err)
		}
		if _, err := Undo(context.Background(), f.machine, Options{}, false); err != nil {
			b.Fatal(err)
		}
	}
}

// The second apply, which finds nothing to do.
func BenchmarkSecondApply(b *testing.B) {
	f := benched(b)
	if _, err := f.apply(&f.first); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if did, err := f.apply(&f.first); err != nil || len(did) > 0 {
			b.Fatal(did, err)
		}
	}
}
