// Package doctor says how a machine can isolate a submission.
package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/runner"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"golang.org/x/sys/unix"
)

// lineLimit is how much of a foreign text a line shows, in characters.
const lineLimit = 300

// tools are the programs that an evaluation may need.
var tools = []string{"python3", "nvcc", "hipcc", "nvidia-smi", "rocm-smi"}

// A Diagnosis is what was found.
type Diagnosis struct {
	OK      bool              `json:"ok"`
	Needed  string            `json:"needed"` // level
	Best    *schema.Sandbox   `json:"sandbox"`
	Means   []sandbox.Attempt `json:"means"`
	Machine sandbox.Machine   `json:"machine"`
	Tools   map[string]string `json:"tools"` // path by name, "" when it is not on PATH
	// Proofs are those of this machine's GPUs, by their UUIDs.
	Proofs map[string]Proof `json:"proofs"`
}

// A Proof is what kbrun prove said of a GPU.
type Proof struct {
	OK   bool   `json:"ok"`   // no check failed, in any language
	Text string `json:"text"` // one line: what was checked, and which checks failed
}

// Examine builds a sandbox by every means, in a directory of its own below that of
// the options, and tells which one an evaluation would take.
func Examine(o sandbox.Options) (d *Diagnosis, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(o.Dir, "kbrun-doctor-")
	if err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	o.Dir = dir
	sb, err := sandbox.Open(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := sb.Close(); err == nil {
			err = closeErr
		}
	}()
	d = &Diagnosis{Needed: o.Minimum, Machine: sb.Machine(), Tools: map[string]string{}, Means: sb.Probe()}
	for _, a := range d.Means {
		if d.Best == nil && a.Sandbox != nil && a.Sandbox.AtLeast(d.Needed) {
			d.Best, d.OK = a.Sandbox, true // the one that evaluate would take
		}
	}
	for _, name := range tools {
		d.Tools[name], _ = runner.LookPath(name, o.Environ) // "" when it is not there
	}
	d.Proofs = proofs(schema.ProofDir)
	return d, nil
}

// proofs reads what kbrun prove has left.
func proofs(dir string) map[string]Proof {
	found := map[string]Proof{}
	files, _ := filepath.Glob(filepath.Join(dir, "*.json")) // the pattern is a good one
	for _, file := range files {
		uuid := strings.TrimSuffix(filepath.Base(file), ".json")
		p, err := runner.ReadProof(file, 0)
		if err != nil {
			found[uuid] = Proof{Text: err.Error()}
			continue
		}
		found[uuid] = Proof{p.Failed() == "", p.Summary()}
	}
	return found
}

// Text is the diagnosis for people.
func (d *Diagnosis) Text() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-16s %s\n", name, fmt.Sprintf(format, args...))
	}
	m := d.Machine
	line("user", "%d", m.User)
	line("kernel", "%s", m.Kernel)
	line("landlock", "version %d", m.Landlock)
	line("memory", "%d MiB for a submission, %s", m.Memory>>20, map[bool]string{true: "by a control group", false: "no control group"}[m.Group])
	line("devices", "%s", cmp.Or(strings.Join(m.Devices, " "), "none"))
	for _, name := range tools {
		if d.Tools[name] != "" {
			line(name, "%s", d.Tools[name])
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(d.Proofs)) {
		line("isolated on", "%s: %s", uuid, text.Line(d.Proofs[uuid].Text, lineLimit))
	}
	for _, tried := range d.Means {
		if tried.Sandbox == nil {
			line(tried.Means, "refused: %s", text.Line(tried.Refused, lineLimit))
			continue
		}
		line(tried.Means, "%s", tried.Sandbox.Level)
		for _, missing := range tried.Sandbox.Missing {
			line("", "without %s: %s", missing.Name, text.Line(missing.Why, lineLimit))
		}
	}
	verdict := fmt.Sprintf("level %q is needed, and cannot be had", d.Needed)
	if d.OK {
		verdict = fmt.Sprintf("%s (%q is needed)", sandbox.Words(d.Best), d.Needed)
	}
	line("sandbox", "%s", verdict)
	b.WriteString("\nWhat each guard says of a submission:\n")
	for _, g := range schema.Guards() {
		line("  "+g.Name, "%s", g.Text)
	}
	return b.String()
}
