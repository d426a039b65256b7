package judge

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// ProfilerWorked reports whether the profiler left something to read when the
// harness under it ended.
func ProfilerWorked(p *plan.Phase, test *Process) bool {
	run, _ := verdict(p, test)
	return p.Profile.Program == "" || profilerFault(p.Profile.Program, run) == nil
}

// profile replaces the outcome by the profiler's fault if there is one, and
// otherwise adds what the profiler printed to the report.
func (v *Judgment) profile(p *plan.Phase, s *Seen) {
	if p.Profile == nil {
		return
	}
	if fault := profilerFault(p.Profile.Program, v.Run); fault != nil && p.Profile.Program != "" {
		v.Outcome, v.Explanation = fault, nil
		return
	}
	v.Profiled = v.Run.Success
	if s.Import == nil || s.Import.Failed() { // that it cannot is no failure: the report itself is kept
		return
	}
	if shown := filterNCU(s.Import.Stdout.Decoded()); shown != "" {
		v.Run.Result = setEntry(v.Run.Result, "benchmark.0.report", base64.StdEncoding.EncodeToString([]byte(shown)))
	}
}

// profilerFault is the outcome when it was the profiler that did not work, and
// not the program under it: it cannot be started, says so itself before the
// program reported anything, or may not read the device's counters.
func profilerFault(program string, run *schema.RunResult) *schema.Outcome {
	if (run.ExitCode == 126 || run.ExitCode == 127) && len(run.Result) == 0 {
		return schema.Outcomef(schema.OutcomeNoProfiler, "%s ended with status %d", program, run.ExitCode)
	}
	for line := range strings.Lines(run.Stdout + "\n" + run.Stderr) {
		line = strings.TrimSpace(line)
		switch {
		case strings.Contains(line, "ERR_NVGPUCTRPERM"):
		case strings.HasPrefix(line, "==ERROR==") && !strings.Contains(line, "application") && len(run.Result) == 0:
		default:
			continue
		}
		return schema.Outcomef(schema.OutcomeNoProfiler, "%s: %s", program, text.Shorten(line, 200))
	}
	return nil
}

// setEntry gives key the value, at the end when it is new.
func setEntry(r schema.Report, key, value string) schema.Report {
	at := slices.IndexFunc(r, func(e schema.Entry) bool { return e.Key == key })
	if at < 0 {
		return append(r, schema.Entry{Key: key, Value: value})
	}
	r[at].Value = value
	return r
}
