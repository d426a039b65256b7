package verdict

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/schema"
)

var update = flag.Bool("update", false, "rewrite testdata from what the forms say")

// phase is one run of a result: what the tester reported, key and value in turn.
func phase(name string, run schema.RunResult, report ...string) schema.Run {
	for i := 0; i < len(report); i += 2 {
		run.Result = append(run.Result, schema.Entry{Key: report[i], Value: report[i+1]})
	}
	at := time.Unix(1e9, 0)
	return schema.Run{Name: name, EvalResult: schema.EvalResult{Start: at, End: at, Run: &run}}
}

func passing(seconds float64) schema.RunResult {
	return schema.RunResult{Success: true, Passed: true, Duration: seconds}
}

var twoTests = []string{
	"test-count", "2",
	"test.0.spec", "size: 127; seed: 4242", "test.0.status", "pass", "test.0.message", `max error 0.5\nclose`,
	"test.1.spec", "size: 128; seed: 5236", "test.1.status", "pass", "check", "pass",
}

var twoBenchmarks = []string{
	"benchmark-count", "2",
	"benchmark.0.spec", "size: 1024", "benchmark.0.runs", "100", "benchmark.0.mean", "1500000.5", "benchmark.0.err", "1200", "benchmark.0.best", "1400000", "benchmark.0.worst", "7000000",
	"benchmark.1.spec", "size: 2048", "benchmark.1.runs", "100", "benchmark.1.mean", "96260.01883589197", "benchmark.1.err", "12.5", "check", "pass",
}

// hostile holds what nobody may write to a terminal, a log or a page.
const hostile = "\x1b[2J\x1b]0;title\x07+++ \u202emirror\u009b31m`<script>`\x00\xff\r~~~ x"

func compiled(ok bool, stderr string) *schema.CompileResult {
	return &schema.CompileResult{NvccFound: true, Success: ok, ExitCode: 2, Stderr: stderr}
}

// results are one of each kind that readers have to tell apart.
var results = map[string]func() *schema.Result{
	"passed": func() *schema.Result {
		return &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomePassed, ""), Runs: schema.Runs{phase("test", passing(1.25), twoTests...)}}
	},
	"ranked": func() *schema.Result {
		r := &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomePassed, ""), Runs: schema.Runs{
			phase("test", passing(1.25), twoTests...), phase("benchmark", passing(2), twoBenchmarks...), phase("leaderboard", passing(12.5), twoBenchmarks...)}}
		r.GPUType, r.Queue = "H100_BK", "h100"
		r.Ambiguous = []string{"leaderboard: device 0 was slowed down (thermal) in 3 of 40 samples"}
		return r
	},
	"wrong": func() *schema.Result {
		return &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomeWrong, ""), Runs: schema.Runs{
			phase("test", schema.RunResult{Success: true, ExitCode: 112, Duration: 0.75}, "test-count", "2",
				"test.0.spec", "size: 127", "test.0.status", "pass",
				"test.1.spec", "size: 128", "test.1.status", "fail", "test.1.error", `mismatch at 3\ngot 1, want 2`, "check", "fail")}}
	},
	"benchmark-failed": func() *schema.Result {
		return &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomeRecheckFailed, ""), Runs: schema.Runs{
			phase("benchmark", schema.RunResult{Success: true, ExitCode: 112, Duration: 0.75}, "benchmark-count", "1",
				"benchmark.0.spec", "size: 127", "benchmark.0.status", "fail", "benchmark.0.error", "mismatch", "check", "fail")}}
	},
	"crashed": func() *schema.Result {
		return &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomeCrashed, ""), Runs: schema.Runs{
			phase("test", schema.RunResult{ExitCode: 1, Duration: 0.5, Stderr: "Traceback:\n  File \"submission.py\", line 1\n    x\nNameError\n"}, "test-count", "1")}}
	},
	"timed-out": func() *schema.Result {
		return &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomeTimeout, ""), Runs: schema.Runs{
			phase("test", schema.RunResult{ExitCode: 114, Duration: 180})}}
	},
	"compile-failed": func() *schema.Result {
		run := schema.Run{Name: "test", EvalResult: schema.EvalResult{Compilation: compiled(false, strings.Repeat("note: earlier\n", 30)+"submission.cu(3): error:\n\tx is undefined\n")}}
		return &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomeCompileFailed, ""), Runs: schema.Runs{run}}
	},
	"profiled": func() *schema.Result {
		report := base64.StdEncoding.EncodeToString([]byte("kernel  time\nadd     3 us???\n"))
		return &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomePassed, ""), Runs: schema.Runs{
			phase("profile.0", passing(3), "benchmark-count", "1", "benchmark.0.spec", "size: 1024", "benchmark.0.report", strings.ReplaceAll(report, "/", "*"), "check", "pass")}}
	},
	"no-score": func() *schema.Result {
		return &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomePassed, ""), Runs: schema.Runs{
			phase("leaderboard", passing(3), "benchmark-count", "1", "benchmark.0.spec", "size: 1024", "benchmark.0.mean", "0", "check", "pass")}}
	},
	"machine": func() *schema.Result {
		return &schema.Result{Error: "no driver", Outcome: schema.NewOutcome(schema.OutcomeMachine, "no driver")}
	},
	"no-outcome": func() *schema.Result {
		return &schema.Result{Success: true, Runs: schema.Runs{phase("test", passing(1), twoTests...), {Name: "benchmark"}}}
	},
	"hostile": func() *schema.Result {
		r := &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomeCrashed, hostile), Runs: schema.Runs{
			phase("test", schema.RunResult{Success: true}, "test-count", "2", "test.0.spec", hostile, "test.0.status", "pass", "test.0.message", hostile,
				"test.1.spec", hostile, "test.1.status", hostile, "test.1.error", hostile),
			phase("benchmark", schema.RunResult{Success: true}, "benchmark-count", "3",
				"benchmark.0.spec", hostile, "benchmark.0.mean", hostile, "benchmark.0.err", hostile, "benchmark.0.best", "nan", "benchmark.0.worst", "inf",
				"benchmark.1.report", base64.StdEncoding.EncodeToString([]byte(hostile)), "benchmark.2.report", "no base64 at all"),
		}}
		r.Ambiguous, r.SharedJudge, r.GPUType, r.Queue = []string{hostile}, true, hostile, hostile
		r.System.GPU, r.System.DeviceCount = hostile, 8
		r.Harness = &schema.HarnessReport{Name: hostile, Variant: hostile, Why: hostile, Preloaded: []string{hostile}, NotPreloaded: hostile}
		r.Explanation = &schema.Explanation{
			File: hostile, Line: -1, Source: hostile, Error: hostile, Traceback: []string{hostile, hostile}, Printed: hostile + "\n--- x\n" + hostile, Expected: hostile, Got: hostile,
			NotRun: []schema.NotRun{{Case: hostile, Why: hostile}}, Withheld: hostile,
		}
		return r
	},
	"explained": func() *schema.Result {
		r := &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomeException, "test: submission.py:4: ValueError: bad"), Runs: schema.Runs{
			phase("test", schema.RunResult{ExitCode: 1, Duration: 0.5}, "test-count", "3", "test.0.spec", "n: 1", "test.0.status", "pass", "test.1.spec", "n: 2")}}
		r.System.CPU = "A processor"
		r.Harness = &schema.HarnessReport{Name: schema.HarnessLegacy, Variant: "pmpp_v2", Why: "harness: legacy in task.yml"}
		r.SharedJudge = true
		r.Explanation = &schema.Explanation{
			File: "submission.py", Line: 4, Source: "return data @ data", Error: "ValueError: bad",
			Traceback: []string{"submission.py:9 in custom_kernel: inner(data)", "submission.py:4 in inner: return data @ data"}, Printed: "step 1\nstep\t2",
			NotRun: []schema.NotRun{{Case: "test.2", Why: "the program ended in an earlier case"}, {Case: "benchmark", Why: "test did not pass"}},
		}
		return r
	},
	"wrong-values": func() *schema.Result {
		r := &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomeWrong, "test: test.0 failed (n: 1): ERROR AT 3: 1 2")}
		r.Explanation = &schema.Explanation{Error: "ERROR AT 3: 1 2", Expected: "2", Got: "1 at 3"}
		return r
	},
	"secret": func() *schema.Result {
		r := &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomeWrong, "test: test.0 failed")}
		for i := range 30 {
			r.Explanation = &schema.Explanation{NotRun: append(notRunOf(r), schema.NotRun{Case: fmt.Sprintf("test.%d", i+1), Why: "test.0 failed"}), Withheld: "the run has a secret seed"}
		}
		return r
	},
	"measured": func() *schema.Result {
		r := &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomePassed, ""), Runs: schema.Runs{phase("leaderboard", passing(12.5), twoBenchmarks...)}}
		r.System.GPU, r.System.DeviceCount = "NVIDIA H100", 2
		r.Harness = &schema.HarnessReport{Name: schema.HarnessIsolated, Variant: "pmpp_v2"}
		r.Measurements = []schema.Measurement{
			{Phase: "leaderboard", Case: 0, Samples: []float64{1.4e6, 1.5e6, 1.5e6, 7e6, 1.45e6}}, {Phase: "test", Case: 1, Samples: []float64{1, 2}},
		}
		return r
	},
	"self-checked": func() *schema.Result {
		r := &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomePassed, ""), Runs: schema.Runs{phase("test", passing(1.25), twoTests...)}}
		r.SharedJudge, r.SelfChecked = true, true
		r.Harness = &schema.HarnessReport{Name: schema.HarnessLegacy, Why: "unknown main file"}
		return r
	},
}

func notRunOf(r *schema.Result) []schema.NotRun {
	if r.Explanation == nil {
		return nil
	}
	return r.Explanation.NotRun
}

func TestForms(t *testing.T) {
	for name, result := range results {
		t.Run(name, func(t *testing.T) {
			r := result()
			r.RunID = "sub-local-CPU_BK-0123456789"
			v := OfRanked(r, schema.RankMean)
			data, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			var indented bytes.Buffer
			if err := json.Indent(&indented, data, "", "  "); err != nil {
				t.Fatal(err)
			}
			indented.WriteByte('\n')
			var log strings.Builder
			for _, run := range r.Runs {
				fmt.Fprintf(&log, "--- Phase %s\n%s", run.Name, PhaseLog(run.Name, &run.EvalResult))
			}
			log.WriteString(v.Log())
			golden(t, name+".txt", v.Text())
			golden(t, name+".log", log.String())
			checkMarkdown(t, name+".md", v.Markdown())
			golden(t, name+".md", v.Style()+"\n\n"+v.Markdown())
			golden(t, name+".json", indented.String())
		})
	}
}

// golden compares a form with its file, and holds what is true of every form:
// nothing in it moves a cursor, and no foreign text begins a line of a log.
func golden(t *testing.T, name, got string) {
	t.Helper()
	for line := range strings.Lines(got) {
		for _, r := range strings.TrimSuffix(line, "\n") {
			if !unicode.IsPrint(r) {
				t.Errorf("%s: the line %q holds %U", name, line, r)
			}
		}
		ours := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "--- Phase ") || strings.HasPrefix(line, "+++ Verdict: ")
		if strings.HasSuffix(name, ".log") && !ours {
			t.Errorf("%s: the line %q begins with foreign text", name, line)
		}
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestWhoIsJudged(t *testing.T) {
	for _, o := range append(schema.Outcomes(), schema.Outcome{}) {
		v := Of(&schema.Result{Outcome: o})
		if v.Passed != (o.Name == schema.OutcomePassed) || v.Judged != (v.Passed || o.Fault == schema.FaultSubmission) {
			t.Errorf("Of(%q): got passed %t, judged %t", o.Name, v.Passed, v.Judged)
		}
	}
}
