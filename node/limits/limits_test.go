package limits

import (
	"errors"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gpu-mode/kbgen/node"
)

func TestCheck(t *testing.T) {
	const dir = "sys/fs/cgroup/kbnode.slice/kbnode-gpu0.slice/"
	good := map[string]string{"memory.max": "1073741824\n", "pids.max": "100\n", "cpuset.cpus.effective": "0-3\n"}
	slice := func(change map[string]string) fs.FS {
		files := maps.Clone(good)
		maps.Copy(files, change)
		all := fstest.MapFS{}
		for name, text := range files {
			if text != "" {
				all[dir+name] = &fstest.MapFile{Data: []byte(text)}
			}
		}
		return all
	}
	s := &node.Slot{Name: "gpu0", CPUs: "0-3", SliceBytes: 1 << 30, SlicePids: 100}
	for _, change := range []map[string]string{nil, {"memory.swap.max": "0\n"}, {"cpuset.cpus.effective": "1,3"}, {"memory.max": "1000000000"}} {
		if err := Check(slice(change), s); err != nil {
			t.Errorf("%v: %v", change, err)
		}
	}
	for _, c := range []struct {
		file, text, want string
	}{
		{"memory.max", "max", "kbnode-gpu0.slice: memory.max: got max, want 1073741824: kbnode apply"},
		{"memory.max", "2147483648", "memory.max: got 2147483648, want 1073741824"},
		{"pids.max", "max", "pids.max: got max, want 100"},
		{"memory.swap.max", "max", "memory.swap.max: got max, want 0"},
		{"cpuset.cpus.effective", "0-7", `cpuset.cpus.effective: got "0-7", want 0-3`},
		{"cpuset.cpus.effective", "\n", `cpuset.cpus.effective: got "", want 0-3`},
		{"memory.max", "", "reading the slice's limits: "},
	} {
		if err := Check(slice(map[string]string{c.file: c.text}), s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: got %v, want %s", c.file, c.text, err, c.want)
		}
	}
	if err := Check(fstest.MapFS{}, s); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no slice: %v", err)
	}
}
