package verdict

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// How a phase came out.
const (
	Passed        = "passed"
	Failed        = "failed"         // the tester said so
	Crashed       = "crashed"        // it ended with an exit status of its own
	TimedOut      = "timed-out"      // the runner ended it
	CompileFailed = "compile-failed" // there was nothing to run
	NotRun        = "not-run"
)

// A Run is one phase of the evaluation.
type Run struct {
	Name     string  `json:"name"`      // "test", "benchmark", "leaderboard", "profile.0"
	Status   string  `json:"status"`    // one of the constants above
	ExitCode int     `json:"exit_code"` // of the tester, or of the compiler that failed; negative: the signal
	Seconds  float64 `json:"seconds"`
	Cases    []Case  `json:"cases"`            // at most 1000
	Output   string  `json:"output,omitempty"` // the last lines of standard error, for a phase that crashed or did not compile
}

// A Case is one test or benchmark as the tester reported it.
type Case struct {
	Key     string // in the report, "test.0"
	Spec    string // its parameters, "size: 128; seed: 5"
	Status  string // "pass", "fail", ...; "" for a benchmark that was timed or profiled
	Message string // the error of a case that did not pass, what the tester remarked on one that did; may have several lines

	// Times of a benchmark in nanoseconds, as the tester wrote them: "" where
	// it wrote none, and no number where it wrote nonsense.
	Mean, Err, Best, Worst string

	// Samples are the calls that were timed, in nanoseconds, where the harness
	// kept them, and Measured is all that it kept; nil: nothing.
	Samples  []float64
	Measured *schema.Measurement

	Profile string // the profiler's report; "" without
}

// Passed reports whether the tester let the case pass.
func (c *Case) Passed() bool { return c.Status == "pass" }

// maxCases bounds what a report can make us print.
const maxCases = 1000

// exitTimeout is the exit status under which a result holds a phase that passed
// its time limit.
//
// Source: gpu-mode/kernelbot, src/libkernelbot/consts.py, ExitCode.
const exitTimeout = 114

func runOf(name string, e *schema.EvalResult) Run {
	run := Run{Name: name, Status: NotRun}
	if c := e.Compilation; c != nil && !c.Success {
		run.Status, run.ExitCode, run.Output = CompileFailed, c.ExitCode, lastLines(c.Stderr, 20)
		return run
	}
	r := e.Run
	if r == nil {
		return run
	}
	run.ExitCode, run.Seconds, run.Cases = r.ExitCode, r.Duration, cases(r.Result)
	switch {
	case r.Success && r.Passed:
		run.Status = Passed
	case r.Success:
		run.Status = Failed
	case r.ExitCode == exitTimeout:
		run.Status = TimedOut
	default:
		run.Status = Crashed
	}
	if !r.Success {
		run.Output = lastLines(r.Stderr, 20)
	}
	return run
}

// words say how the phase came out: "passed in 1.2 s".
func (r *Run) words() string {
	switch r.Status {
	case Passed:
		return fmt.Sprintf("passed in %.1f s", r.Seconds)
	case Failed:
		return fmt.Sprintf("failed after %.1f s", r.Seconds)
	case Crashed:
		return fmt.Sprintf("ended with exit status %d after %.1f s", r.ExitCode, r.Seconds)
	case TimedOut:
		return fmt.Sprintf("timed out after %.1f s", r.Seconds)
	case CompileFailed:
		return fmt.Sprintf("does not compile, exit status %d", r.ExitCode)
	}
	return "did not run"
}

// cases reads a tester's report: benchmarks where it counts them, else tests.
func cases(report schema.Report) []Case {
	values := make(map[string]string, len(report))
	for _, e := range report {
		values[e.Key] = e.Value
	}
	if text, ok := values["benchmark-count"]; ok {
		n, _ := strconv.Atoi(text)
		return benchmarks(values, min(n, maxCases))
	}
	var list []Case
	for len(list) < maxCases {
		c := caseOf(values, fmt.Sprintf("test.%d", len(list)))
		if _, ok := values[c.Key+".status"]; !ok {
			break
		}
		list = append(list, c)
	}
	return list
}

func benchmarks(values map[string]string, n int) []Case {
	var list []Case
	for i := range n {
		c := caseOf(values, fmt.Sprintf("benchmark.%d", i))
		get := func(name string) string { return values[c.Key+"."+name] }
		if c.Status != "fail" {
			c.Status = ""
			if c.Profile = profileText(get("report")); c.Profile == "" {
				c.Mean, c.Err, c.Best, c.Worst = get("mean"), get("err"), get("best"), get("worst")
			}
		}
		list = append(list, c)
	}
	return list
}

// caseOf reads what tests and benchmarks have in common.
func caseOf(values map[string]string, key string) Case {
	c := Case{Key: key, Spec: values[key+".spec"], Status: values[key+".status"]}
	message := values[key+".error"]
	if c.Passed() {
		message = values[key+".message"]
	}
	c.Message = strings.ReplaceAll(message, `\n`, "\n") // as testers write line ends
	return c
}

// profileText decodes a profiler's report; "" stays "". Testers write base64
// with "*" for "/", kbrun the standard one.
func profileText(report string) string {
	text, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(report, "*", "/"))
	if err != nil {
		return "the profiler's report is not base64"
	}
	return string(text)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
