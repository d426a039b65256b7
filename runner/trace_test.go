package runner

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestPackBounds(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int64{"a.csv": 10, "bomb.csv": 1 << 40, "z.csv": 20} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/", filepath.Join(dir, "root")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	pack := func(dir string, limit int) []byte {
		t.Helper()
		z := newTrace(limit)
		err := z.addAll(dir, func(string) bool { return true })
		data, packErr := z.bytes()
		if err := errors.Join(err, packErr); err != nil {
			t.Fatal(err)
		}
		return data
	}
	data := pack(dir, traceLimit)
	files := unpack(t, base64.StdEncoding.EncodeToString(data))
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "LEFT_OUT.txt a.csv" || files["LEFT_OUT.txt"] != "\"bomb.csv\"\n\"z.csv\"\n" {
		t.Errorf("packed %q, left out %q", got, files["LEFT_OUT.txt"])
	}
	if data := pack(filepath.Join(dir, "none"), traceLimit); len(data) == 0 {
		t.Error("a directory that does not exist is no zip")
	}
	if files := unpack(t, base64.StdEncoding.EncodeToString(pack(dir, 5))); files["a.csv"] != "" || !strings.Contains(files["LEFT_OUT.txt"], "a.csv") {
		t.Errorf("packed %q into 5 bytes", files)
	}
}
