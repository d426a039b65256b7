package limits

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

// Check says whether the slot's slice is limited at least as its config says, read from
// the kernel below fsys, which is "/". A slice that is misspelt, or was not loaded, has
// no limits, and nothing else would say so.
func Check(fsys fs.FS, s *node.Slot) error {
	for _, limit := range Slice(s) {
		raw, err := fs.ReadFile(fsys, strings.TrimPrefix(s.CgroupDir(), "/")+"/"+limit.File)
		if err != nil && limit.Optional {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the slice's limits: %w", err)
		}
		if got := strings.TrimSpace(string(raw)); !limit.holds(got) {
			if limit.File == cpuset {
				got = strconv.Quote(got)
			}
			return fmt.Errorf("%s: %s: got %s, want %s: kbnode apply, then kbnode doctor --slot %s", s.Slice(), limit.File, got, limit.Want, s.Name)
		}
	}
	return nil
}

// holds reports whether a value in the limit's file allows no more than it should.
func (l *Limit) holds(got string) bool {
	if l.File == cpuset {
		have, err1 := cpulist.Parse(got)
		want, err2 := cpulist.Parse(l.Want)
		return err1 == nil && err2 == nil && len(have) > 0 && !slices.ContainsFunc(have, func(n int) bool { return !slices.Contains(want, n) })
	}
	have, err1 := strconv.ParseInt(got, 10, 64)
	want, err2 := strconv.ParseInt(l.Want, 10, 64)
	if l.File == "memory.max" {
		want += page
	}
	return err1 == nil && err2 == nil && have <= want
}
