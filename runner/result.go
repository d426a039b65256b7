package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// newResult is the result of an evaluation that has not begun.
func newResult(job Job) *schema.Result {
	r := &schema.Result{Success: true, RunID: job.RunID, System: schema.SystemInfo{DeviceCount: 1}}
	r.Timing = &schema.Timing{Decode: job.Decode.Seconds(), Phases: []schema.PhaseTiming{}}
	if budget, limited := job.Payload.Budget(); limited {
		r.Timing.Budget = budget.Seconds()
	}
	return r
}

// finish enters how the evaluation ended.
func finish(r *schema.Result, start time.Time, err error) {
	r.Outcome = outcomeOf(err)
	r.Timing.Total = time.Since(start).Seconds()
	r.Timing.Peak = ownPeak()
	if r.Outcome.ExitStatus() != 0 {
		r.Success, r.Error = false, r.Outcome.Text
	}
}

// add enters a phase: its evidence, and under Kernelbot's keys what it came to,
// if it got as far as a run.
func (e *evaluation) add(r *phaseRun) {
	v := &r.verdict
	timing := schema.PhaseTiming{
		Name: r.p.Name, Write: r.writing.Seconds(),
		WarmUp: used(r.seen.WarmUp), Compile: used(r.seen.Compile), Run: used(r.seen.Test),
	}
	if r.reused {
		timing.Compile = nil
	}
	e.result.Timing.Phases = append(e.result.Timing.Phases, timing)
	e.result.Ambiguous = append(e.result.Ambiguous, r.ambiguous...)
	e.result.SharedJudge = e.result.SharedJudge || v.SharedJudge
	e.result.SelfChecked = e.result.SelfChecked || v.SelfChecked
	if v.Explanation != nil && (e.result.Explanation == nil || r.p.Mode != schema.ModeProfile) { // as the outcome: a later phase's, or the first profile's
		e.result.Explanation = v.Explanation
	}
	if v.Compiler != "" {
		e.result.Versions.Compiler = v.Compiler
	}
	if r.eval.Run != nil {
		e.result.Runs = append(e.result.Runs, schema.Run{Name: r.p.Name, EvalResult: r.eval})
	}
}

// notRun tells which phases did not come to be because an earlier one did not
// pass.
func (e *evaluation) notRun(ended string, rest []plan.Phase) {
	if len(rest) == 0 || e.result.Explanation == nil && e.result.Runs.Get(ended) == nil {
		return
	}
	if e.result.Explanation == nil {
		e.result.Explanation = &schema.Explanation{}
	}
	for i := range rest {
		e.result.Explanation.NotRun = append(e.result.Explanation.NotRun, schema.NotRun{Case: rest[i].Name, Why: ended + " did not pass"})
	}
}

// used is a process's part of the timing; nil when it did not run.
func used(seen *judge.Process) *schema.ProcessUsed {
	if seen == nil || seen.NotStarted != "" {
		return nil
	}
	u := &schema.ProcessUsed{
		Wall: seen.Duration.Seconds(), User: seen.User.Seconds(), System: seen.System.Seconds(),
		Peak: seen.Peak, Exit: seen.ExitCode,
	}
	if seen.How == judge.Exited && seen.ExitCode < 0 {
		u.Signal = unix.SignalName(syscall.Signal(-seen.ExitCode))
	}
	switch seen.How {
	case judge.TimedOut:
		u.Killed = "timeout"
	case judge.OutOfTime:
		u.Killed = "out of time"
	case judge.Canceled:
		u.Killed = "canceled"
	}
	return u
}

// ownPeak is the most memory that this process has had resident, in bytes.
func ownPeak() int64 {
	var self unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &self) != nil {
		return 0
	}
	return self.Maxrss << 10 // Linux counts KiB
}

// versions names what judges and what is judged. No digest includes the seed: a
// short one could be found by trying.
func versions(job Job, env []string) *schema.Versions {
	open := *job.Payload
	open.Seed = nil
	v := &schema.Versions{Runner: job.Version, Image: job.Image, Payload: digest(open.JSON()), Files: []schema.FileDigest{}}
	if path, err := LookPath("python3", env); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			v.Python = filepath.Base(real)
		}
	}
	for _, f := range slices.Concat(job.Payload.Sources, job.Payload.Headers) {
		d := schema.FileDigest{Name: f.Name, SHA256: digest(f.Text)}
		v.Files = append(v.Files, d)
		if f.Name == plan.SubmissionFile || f.Name == "submission.cu" {
			v.Submission = d.SHA256
		}
	}
	return v
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
