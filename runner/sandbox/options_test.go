package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

func TestTooWeakRunsNothing(t *testing.T) {
	b := newBench(t, Options{Minimum: schema.SandboxFull}, schema.MeansProcess)
	_, _, err := b.start(t, `open("ran", "w")`)
	var weak *WeakError
	if !errors.As(err, &weak) || weak.Best == nil || !strings.Contains(err.Error(), `want a sandbox of level "full"`) {
		t.Errorf("Start = %v", err)
	}
	if files, _ := os.ReadDir(b.dirs.Work); len(files) > 0 {
		t.Errorf("something ran: %v", files)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(Options{Dir: t.TempDir(), Minimum: "most"}); err == nil || !strings.Contains(err.Error(), `got "most"`) {
		t.Errorf("Open with an unknown level: %v", err)
	}
	if _, err := Open(Options{Dir: "/nowhere"}); err == nil {
		t.Error("Open in a directory that is not there")
	}
	for _, path := range []string{"/", "//", "/..", "data", "", "/proc/self", "/dev", "/proc/1/root"} {
		if _, err := Open(Options{Dir: t.TempDir(), Read: []string{path}}); err == nil || !strings.Contains(err.Error(), strconv.Quote(path)) {
			t.Errorf("Open with %q to read: %v", path, err)
		}
	}
}

func TestReads(t *testing.T) {
	b := &Sandbox{o: Options{Read: []string{"/srv/data", "/asked"}, Environ: []string{
		"HOME=/home/me", "PATH=/usr/bin:/home/me:/home/me/.local/bin:bin:/:/home:/proc/self:/root", "LD_LIBRARY_PATH=/data/lib", "SECRET_PATH=/x",
	}}}
	got := b.reads()
	for _, want := range []string{"/srv/data", "/asked", "/usr/bin", "/home/me/.local/bin", "/data/lib"} {
		if !slices.Contains(got, want) {
			t.Errorf("reads() = %q lacks %s", got, want)
		}
	}
	for _, bad := range []string{"/home/me", "bin", "/", "/home", "/proc/self", "/root", "/x"} {
		if slices.Contains(got, bad) {
			t.Errorf("reads() = %q has %s", got, bad)
		}
	}
}

func TestMapped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "uid_map")
	must(t, os.WriteFile(file, []byte("         0     100000      65536\n     70000     200000          1\n"), 0o644))
	for id, want := range map[int]bool{0: true, 65535: true, 65536: false, 70000: true, uidBase: false} {
		if got := mapped(file, id); got != want {
			t.Errorf("mapped(%d) = %v, want %v", id, got, want)
		}
	}
	if mapped("/nowhere", 0) {
		t.Error("an id is mapped by no file")
	}
}
