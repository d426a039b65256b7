// Package plan says what an evaluation will do before anything is done: a
// payload and the facts of a machine in; phases with their files, command
// lines, limits and environment out. It is pure: no file, clock, process or
// environment is touched, and the same input gives the same plan. The goldens
// in testdata show every kind of command that kbrun ever starts.
//
// It does not know how a command is run (package runner does) nor what its
// output means (package judge).
//
// Source of the commands: gpu-mode/kernelbot, src/libkernelbot/run_eval.py.
package plan

import (
	"path/filepath"
	"strconv"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// Runtimes as Kernelbot names them.
const (
	RuntimeCUDA = "CUDA"
	RuntimeROCm = "ROCm"
)

// A Machine is what a plan has to know of the machine it is for.
type Machine struct {
	Root    string   // the job's own directory; the phases' lie below it
	Environ []string // "NAME=value"; [Environ] picks what a submission may see
	Runtime string   // RuntimeCUDA or RuntimeROCm; "" without a GPU
	GPUs    int      // that a submission sees
	// Isolated: kbrun's own harness judges, whose worker a profiler looks at.
	Isolated bool

	// Programs are the paths of those of [Programs] that are on PATH, by name.
	Programs map[string]string
	// Missing lists the payload's absolute include directories that are not
	// there.
	Missing []string
}

// Programs names the compilers and profilers that a plan may use.
func Programs() []string { return []string{"nvcc", "hipcc", ncu, rocprof} }

// A Phase is one call of a task's harness, with what has to come before it, in
// directories of its own. They are new in every phase, so that none finds what
// an earlier one kept; an extension is therefore built once per phase, within
// the warm-up's limit.
//
// The order is: Files into Work; WarmUp, then Work made anew and Files written
// again; Version, Compile, then Files removed; Test; Profile's import. What is
// nil does not happen.
type Phase struct {
	Name string // the run's key in the result: "test", "profile.0"
	Mode string // what the harness is told: one of schema.Modes
	Directories
	Files   schema.Files // written before the first command
	Variant *Variant     // the known harness in Python that its main file is; nil: none

	// Isolated: a task in C++ that the isolated harness judges. Builds are its
	// compilations, one after the other, once for all phases; Files and Compile are
	// the last one's.
	Isolated bool
	Builds   []Build

	WarmUp           *Command // the submission alone, to fill its build caches
	Version, Compile *Command // of the compiler
	Compiler         string   // its name, nvcc or hipcc
	Test             *Command // the harness
	Cases            string   // text of CasesFile, which Test reads
	Profile          *Profile // nil outside of mode profile

	// Refused is the outcome when the commands before it went well: machine or
	// payload do not allow the rest. Test is nil then.
	Refused *schema.Outcome

	// Budget is the wall time that the payload's limits allow for all phases,
	// "15m0s"; "" when one has no limit.
	Budget string
}

// Directories is where a phase works. Work holds the payload's files, Home and
// Temp are the submission's, Dir holds all three.
type Directories struct{ Dir, Work, Home, Temp string }

// CasesFile is what Test reads its cases from. It lies where the submission
// cannot write.
func (d Directories) CasesFile() string { return filepath.Join(d.Dir, "cases.txt") }

// Timed reports whether the harness measures times, so that the devices have
// to be watched meanwhile.
func (p *Phase) Timed() bool { return p.Mode != schema.ModeTest && p.Mode != schema.ModeProfile }

// A Profile is what a profiler is to leave.
type Profile struct {
	Profiler string // as Kernelbot names it; else ProfilerTorch or ProfilerPython

	// Program is Test's first word, Path the file, Argv what stands before the
	// harness's own words, and Environ what the environment has for it. "" and nil:
	// the worker of the isolated harness looks at itself.
	Program, Path string
	Argv, Environ []string

	Dir    string   // where it writes; made new, for every user to write
	Import *Command // makes text of it; nil when there is none to be had
}

// A Command is one process of the submission, or of a tool that reads it.
type Command struct {
	Argv    []string
	Dir     string
	Environ []string      // all of it but the seed
	Limit   time.Duration // wall time; 0 means none
	Report  bool          // it gets a channel for its report, ReportFD
	More    bool          // another command follows: its sandbox can be built meanwhile

	// Harness: a harness in Python, run by way of harness.py, which closes its
	// process to others and hands it the seed out of sight.
	Harness bool
	// Built: the compiler made this program. That it cannot be started is the
	// submission's doing.
	Built bool
	// Watch is text to look for on stdout, also beyond what is kept.
	Watch string
	// Seed becomes POPCORN_SEED; nil leaves it unset. It is secret, and shown
	// by no text of a plan.
	Seed *int64 `json:"-"`
}

// ReportFD is the number of the report's descriptor in the child, as
// POPCORN_FD names it. The next one is harness.py's own.
const ReportFD = 3

// Text is the command as a result shows it, quoted for a shell.
func (c *Command) Text() string { return shellJoin(c.Argv) }

// Check returns the outcome of a payload that no machine could evaluate, nil for
// all others. [New] takes only the others.
func Check(p *schema.Payload) *schema.Outcome {
	if p.Mode == schema.ModeProfile && p.Seed != nil {
		return schema.Outcomef(schema.OutcomeBadPayload, "payload: seed: got one in mode %s, want none: what a profile holds could tell it", p.Mode)
	}
	last := p.RankingBy == schema.RankLast || p.Mode == schema.ModeProfile
	if p.Mode != schema.ModeTest && last && len(p.Benchmarks) == 0 {
		return schema.Outcomef(schema.OutcomeBadPayload, `payload: benchmarks: got none, want at least one in mode %s with ranking_by %q`, p.Mode, p.RankingBy)
	}
	return nil
}

// New plans the phases of a payload's mode, in order.
func New(p *schema.Payload, m Machine) []Phase {
	budget := ""
	if d, limited := p.Budget(); limited {
		budget = d.String()
	}
	variant := variantOf(p)
	modes := p.Phases()
	phases := make([]Phase, len(modes))
	for i, mode := range modes {
		b := builder{p: p, m: m, only: -1, more: i+1 < len(modes), ph: Phase{Name: mode, Mode: mode, Budget: budget, Variant: variant}}
		if mode == schema.ModeProfile {
			b.ph.Name, b.only = "profile."+strconv.Itoa(i), i
		}
		b.place()
		if p.Lang == schema.LangCUDA {
			b.cuda()
		} else {
			b.python()
		}
		phases[i] = b.ph
	}
	return phases
}
