package api

import (
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict"
)

// report is a result for people, in Kernelbot's order: a title, a line for each
// phase, then everything about it.
func report(gpu, mode string, r *schema.Result, ranking string) string {
	var b strings.Builder
	title := runner
	if gpu != "" {
		title = gpu + " on " + runner
	}
	if !r.Success {
		fmt.Fprintf(&b, "%s ❌ failure\n", title)
		if r.Error != "" {
			b.WriteString(text.Line(r.Error, 1000) + "\n")
		}
		return b.String()
	}
	fmt.Fprintf(&b, "%s ✅ success\n", title)
	for _, line := range phases(r.Runs, mode == schema.ModeLeaderboard) {
		b.WriteString("> " + line + "\n")
	}
	if r.Outcome.Name != "" {
		b.WriteString("\n" + verdict.OfRanked(r, ranking).Text())
	}
	return b.String()
}

// phases says how each phase went, up to the first that did not pass. A ranked
// evaluation has all but the profile.
func phases(runs schema.Runs, ranked bool) (lines []string) {
	compiled := false
	for _, run := range runs {
		if c := run.Compilation; c != nil && !c.Success {
			return []string{"❌ Compilation failed"}
		} else if c != nil {
			compiled = true
		}
	}
	if compiled {
		lines = append(lines, "✅ Compilation successful")
	}
	for _, phase := range []struct{ name, done, of, missing string }{
		{schema.ModeTest, "Testing", "tests", "Tests missing"},
		{schema.ModeBenchmark, "Benchmarking", "benchmarks", "Benchmarks missing"},
		{schema.ModeProfile, "Profiling", "profile", ""},
		{schema.ModeLeaderboard, "Leaderboard run", "leaderboard", "Leaderboard missing"},
	} {
		found := false
		for _, run := range runs {
			if run.Name != phase.name && !strings.HasPrefix(run.Name, phase.name+".") {
				continue
			}
			found = true
			switch r := run.Run; {
			case r != nil && r.Success && r.Passed:
				lines = append(lines, "✅ "+phase.done+" successful")
			case r != nil && r.Success:
				return append(lines, "❌ "+phase.done+" failed")
			default:
				return append(lines, "❌ Running "+phase.of+" failed"+reason(r))
			}
		}
		if !found && ranked && phase.missing != "" {
			return append(lines, "❌ "+phase.missing)
		}
	}
	return lines
}

// Exit statuses of a tester that Kernelbot has words for.
const (
	exitCUDA    = 110
	exitFailed  = 112
	exitTimeout = 114
)

func reason(r *schema.RunResult) string {
	switch {
	case r == nil || r.ExitCode == exitFailed:
		return ""
	case r.ExitCode == exitTimeout:
		return " (timeout)"
	case r.ExitCode == exitCUDA:
		return " (cuda api error)"
	}
	return fmt.Sprintf(" (internal error %d)", r.ExitCode)
}
