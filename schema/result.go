package schema

import (
	"time"
)

// A Result is result.json: what Kernelbot's parser reads, and beside it the run
// id, the outcome and the evidence. Kernelbot ignores further keys at this level, and refuses
// them inside system, compilation, run and profile.
type Result struct {
	Success bool   // the evaluation itself worked; says nothing about the submission
	Error   string // why it did not
	System  SystemInfo
	Runs    Runs
	RunID   string
	Outcome Outcome
	Evidence
}

// SystemInfo is the machine as reports show it.
type SystemInfo struct {
	GPU         string
	DeviceCount int // 1 when no device was found, as in Kernelbot
	CPU         string
	Runtime     string // "CUDA", "ROCm" or ""
	Platform    string // Python's platform.platform()
	Torch       string
	Hostname    string
}

// Runs are the phases in the order they ran.
type Runs []Run

// A Run is one phase under its key: "test", "benchmark", "leaderboard" or
// "profile.<n>".
type Run struct {
	Name string
	EvalResult
}

// Get returns the run of that name, nil when it did not happen.
func (r Runs) Get(name string) *EvalResult {
	for i := range r {
		if r[i].Name == name {
			return &r[i].EvalResult
		}
	}
	return nil
}

// An EvalResult is one phase. Start is taken before files are written and End
// after the tester, so the span holds compilation or warm-up too.
type EvalResult struct {
	Start, End  time.Time // written in UTC with offset and six fraction digits
	Compilation *CompileResult
	Run         *RunResult
	Profile     *ProfileResult
}

// A CompileResult is one call of nvcc, or the warm-up of a Python submission
// that built an extension.
type CompileResult struct {
	NvccFound      bool
	NvccVersion    string
	Success        bool
	Command        string
	Stdout, Stderr string
	ExitCode       int
}

// A RunResult is one tester process.
type RunResult struct {
	Success        bool // exit status 0 or 112
	Passed         bool // the tester said "check: pass"
	Command        string
	Stdout, Stderr string
	ExitCode       int     // negative: the signal's number; 114: timeout
	Duration       float64 // seconds of the process alone
	Result         Report
}

// A Report is what a tester wrote: keys and values in the order of their first
// appearance, each key once.
type Report []Entry

type Entry struct{ Key, Value string }

// Get returns the value of key.
func (r Report) Get(key string) (string, bool) {
	for _, e := range r {
		if e.Key == key {
			return e.Value, true
		}
	}
	return "", false
}

// A ProfileResult is what a profiler left.
type ProfileResult struct {
	Profiler    string
	Trace       string // base64 of a zip
	DownloadURL *string
}
