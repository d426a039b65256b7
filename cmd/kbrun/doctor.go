package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/runner"
	"github.com/gpu-mode/kbgen/runner/job"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

const helpDoctor = `Say how this machine can isolate a submission. Nothing is changed.

Usage:
  kbrun doctor [options]

Options:
{options}

Stdout: the machine, each means of building a sandbox here, what it lacks, and
the one that evaluate would take.

Exit status:
  0   the level needed can be had
  64  wrong usage
  75  it cannot

Example:
  kbrun doctor --sandbox full
`

type doctorCmd struct {
	JSON bool `help:"print JSON"`
	sandboxFlags
	exposed error
}

// A diagnosis is what doctor prints.
type diagnosis struct {
	OK      bool              `json:"ok"`
	Needed  string            `json:"needed"` // level
	Best    *schema.Sandbox   `json:"sandbox"`
	Means   []meansTried      `json:"means"`
	Machine sandbox.Machine   `json:"machine"`
	Tools   map[string]string `json:"tools"` // path by name, "" when it is not on PATH
}

type meansTried struct {
	Means   string          `json:"means"`
	Sandbox *schema.Sandbox `json:"sandbox,omitempty"`
	Refused string          `json:"refused,omitempty"`
}

// Run builds a sandbox by every means and prints what came of it.
func (c *doctorCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.exposed != nil {
		return &cli.ExitError{Status: schema.ExitTempFail, Err: c.exposed}
	}
	d, err := c.diagnose(env)
	if err != nil {
		return &cli.ExitError{Status: schema.ExitTempFail, Err: err}
	}
	if c.JSON {
		enc := json.NewEncoder(env.Stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(d)
	} else {
		_, err = io.WriteString(env.Stdout, d.text())
	}
	if err != nil {
		return err
	}
	if !d.OK {
		return cli.WithHint(&cli.ExitError{Status: schema.ExitTempFail, Err: fmt.Errorf("want a sandbox of level %q", d.Needed)},
			"allow user namespaces to this user, run as root, or use a kernel with Landlock")
	}
	return nil
}

func (c *doctorCmd) diagnose(env *cli.Env) (d *diagnosis, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(env.Getenv("TMPDIR"), "kbrun-doctor-")
	if err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	read, hide := c.paths(env)
	sb, err := sandbox.Open(sandbox.Options{Dir: dir, Environ: env.Environ(), Read: read, Hide: hide, Minimum: c.level()})
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := sb.Close(); err == nil {
			err = closeErr
		}
	}()
	d = &diagnosis{Needed: c.level(), Machine: sb.Machine(), Tools: map[string]string{}}
	for _, a := range sb.Probe() {
		d.Means = append(d.Means, meansTried{a.Means, a.Got, a.Why})
		if d.Best == nil && a.Got != nil && a.Got.AtLeast(d.Needed) {
			d.Best, d.OK = a.Got, true // the one that evaluate would take
		}
	}
	for _, name := range []string{"python3", "nvcc", "hipcc", "nvidia-smi", "rocm-smi"} {
		d.Tools[name], _ = runner.LookPath(name, env.Environ()) // "" when it is not there
	}
	return d, nil
}

func (d *diagnosis) text() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-16s %s\n", name, fmt.Sprintf(format, args...))
	}
	m := d.Machine
	line("user", "%d", m.User)
	line("kernel", "%s", m.Kernel)
	line("landlock", "version %d", m.Landlock)
	line("memory", "%d MiB for a submission, %s", m.Memory>>20, map[bool]string{true: "by a control group", false: "no control group"}[m.Group])
	line("devices", "%s", orNone(m.Devices))
	for _, name := range []string{"python3", "nvcc", "hipcc", "nvidia-smi", "rocm-smi"} {
		if d.Tools[name] != "" {
			line(name, "%s", d.Tools[name])
		}
	}
	for _, tried := range d.Means {
		if tried.Sandbox == nil {
			line(tried.Means, "refused: %s", job.Shown(tried.Refused))
			continue
		}
		line(tried.Means, "%s", tried.Sandbox.Level)
		for _, missing := range tried.Sandbox.Missing {
			line("", "without %s: %s", missing.Name, job.Shown(missing.Why))
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

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, " ")
}
