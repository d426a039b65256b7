package gate

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/cpulist"
)

// page is the size that the kernel rounds memory limits to.
const page = 64 << 10 // the largest there is

// Limits says whether the slot's slice is limited as the config says, read from the
// kernel below fsys, which is "/". A slice that is misspelt, or was not loaded, has
// no limits, and nothing else would say so.
//
// Source: cgroup v2, files memory.max, memory.swap.max, pids.max, cpuset.cpus.effective.
func Limits(fsys fs.FS, s *node.Slot) error {
	dir := strings.TrimPrefix(s.CgroupDir(), "/")
	for _, limit := range []struct {
		file string
		most int64
		slop int64
	}{{"memory.max", s.SliceBytes, page}, {"pids.max", int64(s.SlicePids), 0}} {
		got, err := read(fsys, dir+"/"+limit.file)
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(got, 10, 64)
		if err != nil || n > limit.most+limit.slop {
			return fmt.Errorf("%s: %s: got %s, want %d: kbnode apply, then kbnode doctor --slot %s", s.Slice(), limit.file, got, limit.most, s.Name)
		}
	}
	// A kernel without swap has no such file.
	if got, err := read(fsys, dir+"/memory.swap.max"); err == nil && got != "0" {
		return fmt.Errorf("%s: memory.swap.max: got %s, want 0: kbnode apply, then kbnode doctor --slot %s", s.Slice(), got, s.Name)
	}
	got, err := read(fsys, dir+"/cpuset.cpus.effective")
	if err != nil {
		return err
	}
	if inside, err := subset(got, s.CPUs); err != nil || !inside {
		return fmt.Errorf("%s: cpuset.cpus.effective: got %q, want %s: kbnode apply, then kbnode doctor --slot %s", s.Slice(), got, s.CPUs, s.Name)
	}
	return nil
}

func read(fsys fs.FS, name string) (string, error) {
	raw, err := fs.ReadFile(fsys, name)
	if err != nil {
		return "", fmt.Errorf("reading the slice's limits: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// subset reports whether all of the processors in got, at least one, are in all.
func subset(got, all string) (bool, error) {
	a, err := cpulist.Parse(got)
	if err != nil || len(a) == 0 {
		return false, err
	}
	b, err := cpulist.Parse(all)
	for _, n := range a {
		if !slices.Contains(b, n) {
			return false, err
		}
	}
	return true, err
}
