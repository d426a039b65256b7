package judge

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// withhold takes from a verdict everything that could tell a secret seed: a
// harness holds it, a submission in the harness's process can read it, and
// what either prints, raises or reports goes to whoever reads the result. What
// stays are the runner's own words, numbers of cases that were sent, their
// verdicts, and a passing run's figures.
func (v *Judgment) withhold(p *plan.Phase, test *Process) {
	if p.Test == nil || p.Test.Seed == nil {
		return
	}
	hide := func(s *string) {
		if *s != "" {
			*s = schema.WithheldText
		}
	}
	if c := v.Compilation; c != nil {
		hide(&c.Stdout)
		hide(&c.Stderr)
	}
	if run := v.Run; run != nil {
		hide(&run.Stdout)
		hide(&run.Stderr)
		run.Result = newExpectation(p.Mode, p.Cases).open(run.Result, run.Passed && run.Success)
	}
	if v.Outcome != nil && v.Outcome.Disclosure() != schema.Shown {
		v.withholdText(test)
	}
}

// withholdText puts the outcome's text together anew from what may be told.
func (v *Judgment) withholdText(test *Process) {
	o, run := v.Outcome, v.Run
	words := schema.NewOutcome(o.Name, "").Text
	switch {
	case run == nil:
	case o.Cause() == schema.CauseAnswer:
		if failure := failedCase(run.Result); failure != "" {
			words = failure
		}
	case test != nil && test.Worker != nil && run.ExitCode == workerLeftStatus:
		words = workerOutcome(*test.Worker, test.OutOfMemory).Text // the kernel's word for how it ended
	case !run.Success && run.ExitCode != 0:
		words = "the tester " + exitWords(run.ExitCode)
	}
	if !strings.Contains(words, schema.WithheldText) {
		words += "; more is " + schema.WithheldText
	}
	open := schema.NewOutcome(o.Name, words)
	open.Phase = o.Phase
	v.Outcome = &open
}

// knownKey matches every key that a result of a secret run may have.
var knownKey = regexp.MustCompile(`^(test|benchmark)\.(0|[1-9][0-9]{0,5})\.(spec|status|error|message|runs|mean|std|err|best|worst)$`)

// open returns what may be told of a report. Numbers can spell a seed as well as
// words: a count or a case is told when it is one that was sent, figures only
// when the run passed, which holds them to the clock and to each other.
func (e expectation) open(report schema.Report, passed bool) schema.Report {
	var told schema.Report
	tell := func(key, value string) { told = append(told, schema.Entry{Key: key, Value: value}) }
	one := func(key, value string, of ...string) {
		if !slices.Contains(of, value) {
			value = schema.WithheldText
		}
		tell(key, value)
	}
	last := len(e.specs) - e.count(report) // a harness may report the last case alone, as case 0
	for _, entry := range report {
		switch entry.Key {
		case "check":
			one(entry.Key, entry.Value, "pass", "fail")
			continue
		case "test-count", "benchmark-count":
			one(entry.Key, entry.Value, strconv.Itoa(len(e.specs)), "1", "0")
			continue
		}
		parts := knownKey.FindStringSubmatch(entry.Key)
		if parts == nil {
			continue // its name may be as telling
		}
		i, err := strconv.Atoi(parts[2])
		if err != nil || parts[1] != e.kind() || i >= len(e.specs) {
			continue
		}
		switch part := parts[3]; part {
		case "spec":
			value := schema.WithheldText
			for _, at := range []int{i, i + last} {
				if at < len(e.specs) && sameWords(entry.Value, e.specs[at]) {
					value = e.specs[at]
				}
			}
			tell(entry.Key, value)
		case "status":
			one(entry.Key, entry.Value, "pass", "fail")
		case "error", "message":
			tell(entry.Key, schema.WithheldText)
		default:
			if passed && decimal.MatchString(entry.Value) {
				tell(entry.Key, entry.Value)
			}
		}
	}
	return told
}
