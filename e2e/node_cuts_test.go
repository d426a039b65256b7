package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// powerCuts is the variable with the number of places at which an apply is cut from
// power; each takes some two minutes.
const powerCuts = "KBGEN_NODE_CUTS"

// A machine that is cut from power in the middle of an apply goes on with the next
// one, or goes back with undo.
func TestNodePowerCuts(t *testing.T) {
	needGuest(t)
	cuts, err := strconv.Atoi(cmp.Or(os.Getenv(powerCuts), "10"))
	if err != nil {
		t.Fatalf("%s: %v", powerCuts, err)
	}
	t.Setenv("DISK_CACHE", "writeback") // what the guest has synced outlives a cut
	r := newNodeRig(t)
	g := r.guest
	before := r.tree()
	r.apply("")
	whole := r.tree()
	actions := strings.Count(g.run("kbnode undo --purge --allow-docker-restart 2>&1"), "\n")
	for i := range cuts {
		at := 1 + i*actions/cuts // of the lines that apply prints, one for each thing it does
		t.Run(fmt.Sprintf("after action %d of %d", at, actions), func(t *testing.T) {
			g.t = t
			defer func() { g.t = r.t }()
			g.run(fmt.Sprintf(`rm -f /root/apply.log; sync; (%s >/root/apply.log 2>&1; echo over >>/root/apply.log) >/dev/null 2>&1 &
				until [ "$(wc -l </root/apply.log 2>/dev/null || echo 0)" -ge %d ] || grep -qx over /root/apply.log; do :; done`, r.applyCommand(""), at))
			g.script("boot.sh", "--cut", g.dir)
			g.script("boot.sh", "--again", g.dir)
			g.script(filepath.Join("gpus", "gpus.sh"), "--after-boot", g.dir)
			if i%2 == 0 {
				r.apply("")
				if after := r.tree(); after != whole {
					t.Errorf("apply went on to something else:\n%s", treeDiff(whole, after))
				}
				if out := r.apply(""); !strings.Contains(out, "nothing to do") {
					t.Errorf("and a second one did something:\n%s", out)
				}
			}
			g.run("kbnode undo --purge --allow-docker-restart")
			if after := r.tree(); after != before {
				t.Errorf("undo did not go back:\n%s", treeDiff(before, after))
			}
		})
	}
}

// treeDiff lists the lines that one tree has and the other has not.
func treeDiff(was, is string) string {
	var b strings.Builder
	a, c := strings.Split(was, "\n"), strings.Split(is, "\n")
	for _, line := range a {
		if !slices.Contains(c, line) {
			fmt.Fprintf(&b, "gone:  %s\n", line)
		}
	}
	for _, line := range c {
		if !slices.Contains(a, line) {
			fmt.Fprintf(&b, "there: %s\n", line)
		}
	}
	return b.String()
}
