package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

// Languages and modes a payload may name.
const (
	LangPython = "py"
	LangCUDA   = "cu"

	ModeTest        = "test"
	ModeBenchmark   = "benchmark"
	ModeProfile     = "profile"
	ModePrivate     = "private"
	ModeLeaderboard = "leaderboard"

	RankLast = "last"
	RankMean = "mean"
	RankGeom = "geom"
)

// Languages, Modes and Rankings list what a payload may say.
func Languages() []string { return []string{LangPython, LangCUDA} }
func Modes() []string {
	return []string{ModeTest, ModeBenchmark, ModeProfile, ModePrivate, ModeLeaderboard}
}
func Rankings() []string { return []string{RankLast, RankMean, RankGeom} }

// A Payload is Kernelbot's task configuration together with the submission:
// everything one evaluation needs. The order of Sources, Defines and of the
// parameters inside a case is significant and kept.
type Payload struct {
	Main         string   // py only: the tester, a name in Sources; may be "" with HarnessIsolated
	Sources      Files    // files to create; for cu also nvcc's arguments, in this order
	Headers      Files    // cu only: created, not compiled
	Defines      []Define // cu only
	CompileFlags []string // cu only; carried, but Kernelbot's evaluator never reads it
	IncludeDirs  []string // cu only: directories that exist on the machine
	Libraries    []string // cu only: read by the evaluator, though Kernelbot never sends it

	Lang       string  // one of Languages
	Arch       *string // nvcc's architecture suffix, "90a"; nil means native; unused for py
	Benchmarks []Case
	Tests      []Case
	Mode       string // one of Modes

	TestTimeout      Timeout
	BenchmarkTimeout Timeout // also each profile run's
	RankedTimeout    Timeout

	RankingBy string // one of Rankings; "" is written as RankLast
	Seed      *int64 // the leaderboard's secret seed; nil leaves the tester without one
	MultiGPU  bool

	Extension // which Kernelbot's evaluator does not read
}

// A File is a name without any directory and its text.
type File struct{ Name, Text string }

// Files keep their order; names occur once.
type Files []File

// Get returns the text of the file of that name.
func (f Files) Get(name string) (string, bool) {
	for _, file := range f {
		if file.Name == name {
			return file.Text, true
		}
	}
	return "", false
}

// A Define is one macro for the compiler; without a Value it is -D<name>.
type Define struct {
	Name  string
	Value *string
}

// A Timeout limits the tester process of one phase, in seconds of wall time.
// The zero value is an absent key: 180 seconds.
type Timeout struct {
	set       bool
	unlimited bool
	seconds   float64
}

// DefaultTimeout stands for an absent limit.
const DefaultTimeout = 180 * time.Second

// maxTimeout keeps a limit inside time.Duration and inside reason: a year.
const maxTimeout = 366 * 24 * 3600

// Seconds is a limit of n seconds.
func Seconds(n float64) Timeout { return Timeout{set: true, seconds: n} }

// NoLimit is JSON's null: the tester may run for as long as the job does.
func NoLimit() Timeout { return Timeout{set: true, unlimited: true} }

// Limit returns the limit; limited is false when there is none.
func (t Timeout) Limit() (d time.Duration, limited bool) {
	switch {
	case !t.set:
		return DefaultTimeout, true
	case t.unlimited:
		return 0, false
	}
	return time.Duration(t.seconds * float64(time.Second)), true
}

type namedTimeout struct {
	key   string
	limit Timeout
}

// timeouts lists the limits in the order they are written.
func (p *Payload) timeouts() []namedTimeout {
	return []namedTimeout{
		{"test_timeout", p.TestTimeout},
		{"benchmark_timeout", p.BenchmarkTimeout},
		{"ranked_timeout", p.RankedTimeout},
	}
}

func (t Timeout) node() node {
	if t.unlimited {
		return node{}
	}
	if t.seconds == float64(int64(t.seconds)) {
		return node{kind: kindNumber, text: fmt.Sprint(int64(t.seconds))}
	}
	return node{kind: kindNumber, text: FloatRepr(t.seconds)}
}

// Validate returns every fault that would keep a payload from being evaluated,
// joined. File names must be plain: Kernelbot creates no directories.
func (p *Payload) Validate() error {
	var faults []error
	check := func(ok bool, key, got, want string) {
		if !ok {
			faults = append(faults, &Finding{Path: "payload: " + key, Got: got, Want: want})
		}
	}
	oneOf := func(key, got string, want []string) {
		check(slices.Contains(want, got), key, text.Quote(got), fmt.Sprintf("one of %q", want))
	}
	oneOf("lang", p.Lang, Languages())
	oneOf("mode", p.Mode, Modes())
	if p.RankingBy != "" {
		oneOf("ranking_by", p.RankingBy, Rankings())
	}
	for _, t := range p.timeouts() {
		s := t.limit.seconds
		check(s >= 0 && s <= maxTimeout, t.key, fmt.Sprint(s), fmt.Sprintf("0 to %d seconds, or null for no limit", maxTimeout))
	}
	p.Extension.Faults(func(key, got, want string) { check(false, key, got, want) })
	_, known := p.Sources.Get(p.Main)
	check(known || p.Lang != LangPython || p.Main == "" && p.Harness == HarnessIsolated, "main", text.Quote(p.Main), "the name of a file in sources")
	p.checkNames(check)
	p.checkArguments(check)
	return errors.Join(faults...)
}

// A check notes a fault of the key unless ok.
type check func(ok bool, key, got, want string)

func (p *Payload) checkNames(check check) {
	check(len(p.Sources) > 0, "sources", "no files", "at least one")
	seen := map[string]bool{}
	for _, f := range slices.Concat(p.Sources, p.Headers) {
		check(plainName(f.Name) && !seen[f.Name], "sources", "the file name "+text.Quote(f.Name), "plain file names, each once")
		seen[f.Name] = true
	}
	for _, d := range p.Defines {
		check(identifier().MatchString(d.Name), "defines", "the name "+text.Quote(d.Name), "an identifier")
	}
}

// checkArguments refuses what no command line can hold.
func (p *Payload) checkArguments(check check) {
	values := map[string][]string{"include_dirs": p.IncludeDirs, "libraries": p.Libraries}
	for _, d := range p.Defines {
		if d.Value != nil {
			values["defines"] = append(values["defines"], *d.Value)
		}
	}
	if p.Arch != nil {
		values["arch"] = []string{*p.Arch}
	}
	for _, key := range []string{"defines", "arch", "include_dirs", "libraries"} {
		for _, value := range values[key] {
			check(!strings.Contains(value, "\x00"), key, "the value "+text.Quote(value), "a text without NUL")
		}
	}
}

// plainName reports whether name can be created in a directory as it stands.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\x00") && !strings.HasPrefix(name, "-")
}

var identifier = text.Pattern(`^[A-Za-z_][A-Za-z0-9_]*$`)
