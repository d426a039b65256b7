// Package doctor says what is wrong with a node, why, and which command mends it.
//
// It reads: files, systemd, the engine, drivers. It changes nothing, and it knows
// nothing of queue files: what the machine should be stands in its config.
package doctor

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/docker"
	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A State says how a check ended.
type State string

const (
	OK      State = "ok"
	Warning State = "warning" // jobs run; something should be looked at
	Failure State = "failure" // jobs do not run, or not as promised
	Skipped State = "skipped" // could not be checked; the text says why
)

// A Result is what one check says, of the machine or of one slot.
type Result struct {
	Code  string `json:"code"`           // stable, "slice-limits"
	Slot  string `json:"slot,omitempty"` // empty: the machine
	State State  `json:"state"`
	Text  string `json:"text"` // one line: what was found, what is wanted
	// Fix is the command that mends it, as root types it. TOKEN, PROGRAM and the like
	// stand for what doctor does not know. If no command can mend it, Fix says what to do.
	Fix string `json:"fix,omitempty"`
}

// A Machine is how a machine is read. Tests bring another.
type Machine struct {
	Root string // "/"
	// Run runs a program and returns its standard output. The error carries what it
	// printed on standard error.
	Run  func(ctx context.Context, name string, args ...string) ([]byte, error)
	Look func(name string) (path string, ok bool) // on PATH
	User func(name string) (system.User, error)   // an account
	// Engine asks the docker engine at a socket for a path of its API.
	Engine func(ctx context.Context, socket, path string, query url.Values, into any) error
	Get    func(ctx context.Context, url string) (status int, body []byte, err error)
	// Reach asks a web address for its status and the date of its answer, zero if it
	// has none.
	Reach  func(ctx context.Context, url string) (status int, date time.Time, err error)
	Device device.Machine             // for health
	Root0  bool                       // this process is root
	Inside func(slot *node.Slot) bool // this process is in the slot's slice
	// Owner returns the numbers of a file's owner and group.
	Owner func(info fs.FileInfo) (uid, gid int)
}

// Run makes all checks and returns their results in a fixed order: the machine's,
// then those of each of the slots. With preflight it checks what must hold before an
// agent starts, in under two seconds. A config that is missing or wrong is the
// caller's to report.
func Run(ctx context.Context, m Machine, c *node.Config, slots []*node.Slot, preflight bool) []Result {
	r := &run{ctx: ctx, m: m, c: c}
	for _, check := range machineChecks {
		if check.preflight || !preflight {
			r.check(check.code, check.shown, nil, func() { check.run(r) })
		}
	}
	for _, slot := range slots {
		for _, check := range slotChecks {
			if check.preflight || !preflight {
				r.check(check.code, check.shown, slot, func() { check.run(r, slot) })
			}
		}
	}
	return r.results
}

// A check is one of the machine's or of a slot's.
type check[F any] struct {
	code      string
	preflight bool
	run       F
	shown     string // what it has shown when it finds nothing wrong
}

// A run is one examination.
type run struct {
	ctx     context.Context
	m       Machine
	c       *node.Config
	results []Result
	code    string
	slot    *node.Slot

	docker *info                  // what the engine says of itself; nil: not asked yet
	parts  func() ([]part, error) // of the engine; nil: not asked yet
	date   time.Time              // of the agent API's answer, when that was asked
	facts  *facts.Facts           // of [Preflight] only
}

// check makes one check. A check that says nothing found nothing wrong.
func (r *run) check(code, shown string, slot *node.Slot, of func()) {
	r.code, r.slot = code, slot
	before := len(r.results)
	of()
	if len(r.results) == before {
		r.report(OK, "", "%s", shown)
	}
}

func (r *run) report(state State, fix, format string, args ...any) {
	result := Result{Code: r.code, State: state, Text: text.Line(fmt.Sprintf(format, args...), 400), Fix: fix}
	if r.slot != nil {
		result.Slot = r.slot.Name
	}
	r.results = append(r.results, result)
}

func (r *run) fail(fix, format string, args ...any) { r.report(Failure, fix, format, args...) }
func (r *run) warn(fix, format string, args ...any) { r.report(Warning, fix, format, args...) }
func (r *run) skip(format string, args ...any)      { r.report(Skipped, "", format, args...) }

// apply returns the kbnode apply command that makes the machine match the queue file.
// It names FILE only if the config does not record the queue file, as older configs do
// not.
func (r *run) apply(flags ...string) string {
	command := []string{"kbnode", "apply"}
	if r.c.QueueFile == "" {
		command = append(command, "FILE")
	}
	return strings.Join(append(command, flags...), " ")
}

func (r *run) path(name string) string { return filepath.Join(r.m.Root, name) }

// read returns a file's text, "" when it cannot be read.
func (r *run) read(name string) string {
	b, err := os.ReadFile(r.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// stat returns what is at a path, nil when there is nothing to be seen.
func (r *run) stat(name string) fs.FileInfo {
	info, err := os.Lstat(r.path(name))
	if err != nil {
		return nil
	}
	return info
}

// programLimit bounds a program: nvidia-smi takes seconds for each GPU if it must load
// the driver.
const programLimit = 30 * time.Second

// program runs a program for at most programLimit.
func (r *run) program(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.ctx, programLimit)
	defer cancel()
	out, err := r.m.Run(ctx, name, args...)
	return strings.TrimSpace(string(out)), err
}

// unit returns properties of a unit as systemd has them. If systemd does not answer,
// the check is reported as skipped and there are none.
func (r *run) unit(name string, properties ...string) map[string]string {
	out, err := r.program("systemctl", "show", "--no-pager", "--property="+strings.Join(properties, ","), name)
	if err != nil {
		r.skip("systemctl: %v", err)
		return nil
	}
	return system.Properties(out)
}

// Drift lists the files that were changed since kbnode wrote them, one result each.
func Drift(ctx context.Context, m Machine, c *node.Config) []Result {
	r := &run{ctx: ctx, m: m, c: c}
	r.files()
	return r.results
}

// A Diagnosis is what kbnode doctor --json prints.
type Diagnosis struct {
	OK     bool     `json:"ok"` // no failure; warnings may be there
	Node   string   `json:"node"`
	Checks []Result `json:"checks"`
}

// Count returns how many checks ended in a state.
func (d *Diagnosis) Count(state State) int {
	n := 0
	for _, r := range d.Checks {
		if r.State == state {
			n++
		}
	}
	return n
}

// Write prints a line for each result that is not as it should be, or for all, with
// its remedy below, and how many there are.
func (d *Diagnosis) Write(w io.Writer, all bool) {
	for _, r := range d.Checks {
		if !all && (r.State == OK || r.State == Skipped) {
			continue
		}
		where := d.Node
		if r.Slot != "" {
			where = r.Slot
		}
		fmt.Fprintf(w, "%-8s %-8s %-18s %s\n", r.State, where, r.Code, r.Text)
		if r.Fix != "" {
			fmt.Fprintf(w, "%-8s %-8s %-18s mend: %s\n", "", "", "", r.Fix)
		}
	}
	fmt.Fprintf(w, "%d checks: %d in order, %d failed, %d to look at, %d not made\n",
		len(d.Checks), d.Count(OK), d.Count(Failure), d.Count(Warning), d.Count(Skipped))
}

// Host returns the machine that this process runs on.
func Host() Machine {
	return Machine{
		Root: "/", Run: system.Run, Engine: func(ctx context.Context, socket, path string, query url.Values, into any) error {
			return docker.New(socket).Do(ctx, http.MethodGet, path, query, nil, into)
		},
		Look: system.Look, User: system.LookupUser, Get: get, Reach: reach, Owner: system.Owner, Device: devices(),
		Root0: os.Geteuid() == 0, Inside: inside,
	}
}

// get asks a web address, for a few seconds at most.
func get(ctx context.Context, url string) (status int, body []byte, err error) {
	resp, body, err := open(ctx, url)
	if err != nil {
		return 0, nil, err
	}
	return resp.StatusCode, body, nil
}

// reach is get for a machine's Reach.
func reach(ctx context.Context, url string) (status int, date time.Time, err error) {
	resp, _, err := open(ctx, url)
	if err != nil {
		return 0, date, err
	}
	date, _ = http.ParseTime(resp.Header.Get("Date")) // else zero
	return resp.StatusCode, date, nil
}

func open(ctx context.Context, url string) (resp *http.Response, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	if resp, err = http.DefaultClient.Do(req); err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp, body, err
}

// devices is how drivers are asked here.
func devices() device.Machine {
	m := device.Machine{Root: "/", Environ: system.Environ(), Limit: programLimit, Settle: 2 * time.Second}
	if path, ok := system.Look("kbrun-nvml"); ok {
		m.Probe = []string{path, "device-probe"}
	}
	if path, ok := system.Look("nvidia-smi"); ok {
		m.SMI = path
	}
	return m
}

// inside reports whether this process is in the slot's slice.
func inside(slot *node.Slot) bool {
	body, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(body)) {
		_, path, _ := strings.Cut(strings.TrimSpace(line), "::")
		if slices.Contains(strings.Split(path, "/"), slot.Slice()) {
			return true
		}
	}
	return false
}
