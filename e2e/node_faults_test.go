package e2e

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
)

// doctor finds nothing wrong, and then each fault that is made.
func (r *nodeRig) doctor(t *testing.T) {
	g := r.guest
	if out, errs, status := g.try("kbnode doctor"); status != 0 {
		t.Errorf("kbnode doctor of a machine that is in order: exit status %d\n%s%s", status, out, errs)
	}
	out, errs, status := g.try("BUILDKITE_API_TOKEN=" + r.APIToken() + " KBLAUNCH_API_URL=" + r.URL() + "/ kbnode doctor --submit --all")
	if status != 0 || !strings.Contains(out, "submit-right") || !strings.Contains(out, "submit-wrong") {
		t.Errorf("kbnode doctor --submit: exit status %d\n%s%s", status, out, errs)
	}
	start := time.Now()
	g.run("kbnode doctor --slot gpu0 --preflight")
	t.Logf("a preflight took %.1f s in the guest", time.Since(start).Seconds())
	for _, f := range nodeFaults(t) {
		r.step(t, f.Name, func(t *testing.T) { r.fault(t, f) })
	}
	r.agents(8)
	g.run("systemctl start kbnode-check.timer") // which a fault has stopped and not every fix starts
	if out, errs, status := g.try("kbnode doctor"); status != 0 {
		t.Errorf("kbnode doctor after all is mended: exit status %d\n%s%s", status, out, errs)
	}
}

// fault makes a fault and mends it by what doctor prints.
func (r *nodeRig) fault(t *testing.T, f *testenv.Fix) {
	g := r.guest
	// The watch would see some of the faults as well, and take the slot out of use.
	// kbnode apply starts it again.
	g.run("systemctl stop kbnode-check.timer; systemctl stop kbnode-check.service")
	g.run(f.Breaks)
	fix, listed := printed(f, r.results(f))
	if !listed {
		t.Errorf("doctor prints %q, want %q", fix, f.Fix)
	}
	if f.Words+f.Untried != "" {
		fix = f.Mend
	}
	fix = strings.NewReplacer("TOKEN", "/root/token", "PROGRAM", "/root/agent", "HEX", "$(sha256sum /root/agent | cut -d ' ' -f 1)").Replace(fix)
	out, errs, status := g.try(fix)
	if status != 0 {
		t.Errorf("%s: exit status %d\n%s%s", fix, status, tail([]byte(out), 2000), tail([]byte(errs), 2000))
	}
	if fix, _ := printed(f, r.results(f)); fix != "" {
		t.Errorf("%s does not mend it: doctor still prints %q\n%s%s", f.Code, fix, tail([]byte(out), 2000), tail([]byte(errs), 2000))
	}
	if f.After != "" {
		g.run(f.After)
	}
}

// nodeFaults are the faults that can be made in the guest.
func nodeFaults(t *testing.T) []*testenv.Fix {
	t.Helper()
	all := testenv.Fixes(t, filepath.Join(root, "node", "doctor", "testdata", "fixes.yml"))
	return slices.DeleteFunc(all, func(f *testenv.Fix) bool { return f.Breaks == "" })
}

// A nodeResult is a check's in kbnode doctor --json.
type nodeResult struct{ Code, Slot, State, Text, Fix string }

// results runs doctor and returns the faults that the check for f reports.
func (r *nodeRig) results(f *testenv.Fix) (found []nodeResult) {
	r.guest.t.Helper()
	out, errs, _ := r.guest.try(cmp.Or(f.Doctor, "kbnode doctor --json --slot gpu2"))
	var d struct{ Checks []nodeResult }
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		r.guest.t.Fatalf("kbnode doctor --json: %v\n%s%s", err, out, errs)
	}
	for _, c := range d.Checks {
		if c.Code == f.Code && (c.State == "failure" || c.State == "warning") {
			r.guest.t.Logf("%s: %s; mend: %s", c.Code, c.Text, c.Fix)
			found = append(found, c)
		}
	}
	return found
}

// printed returns the fault's fix among the results, else the first one; "" if there
// are no results.
func printed(f *testenv.Fix, results []nodeResult) (fix string, listed bool) {
	for _, c := range results {
		if f.Matches(c.Code, c.Fix) {
			return c.Fix, true
		}
	}
	if len(results) > 0 {
		return cmp.Or(results[0].Fix, "nothing"), false
	}
	return "", false
}
