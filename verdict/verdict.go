// Package verdict says what a result means, in every form in which somebody
// reads it: text for a terminal, the log of a job, Markdown for Buildkite's
// annotation, JSON for programs and pages. All forms are written from one
// [Verdict], so that they cannot disagree.
//
// It is pure: a result goes in, text comes out. It knows no build, no launcher
// and no clock, and it decides nothing: who won is in the result.
//
// The texts of a result are foreign: names of cases, messages and output come
// from testers and submissions. A Verdict holds them as they came; each form
// cleans them by package text, and those for people bound them.
package verdict

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Verdict is a result prepared for its readers.
type Verdict struct {
	RunID   string
	GPUType string // that the job was for; "" in results of older runners
	Queue   string
	Outcome schema.Outcome

	// Judged: the result says something about the submission. Otherwise the
	// machine, the task, the launcher or the runner is at fault.
	Judged bool
	Passed bool // every phase passed; implies Judged

	Runs []Run // the phases in the order they ran

	Score   *Ranked // nil without a leaderboard run that passed, or without a ranking
	NoScore string  // why a leaderboard run that passed has no score; "" otherwise

	Explanation *schema.Explanation   // what the submitter is told beyond the outcome; nil: nothing
	Device      string                // what it ran on, by its own name
	Harness     *schema.HarnessReport // which one judged; nil: none

	Ambiguous   []string // why a timing may not be the submission's own doing
	SharedJudge bool     // the submission could write its own report
	SelfChecked bool     // a pass is the submission's own word
}

// A Ranked score is what a leaderboard orders by.
type Ranked struct {
	Seconds float64 `json:"seconds" jsonschema:"lower is better"`
	Ranking string  `json:"ranking" jsonschema:"last, mean or geom"`
}

// Of reads a result. It leaves out the score, which needs the task's ranking:
// see [OfRanked].
//
// A result that names no outcome, which only a runner of another make writes,
// is no verdict: its outcome becomes unsupported.
func Of(r *schema.Result) *Verdict {
	o := r.Outcome
	if o.Name == "" {
		o = schema.NewOutcome(schema.OutcomeUnsupported, "the result names no outcome")
	}
	v := &Verdict{
		RunID: r.RunID, GPUType: r.GPUType, Queue: r.Queue, Outcome: o,
		Judged: o.Fault == schema.FaultNone || o.Fault == schema.FaultSubmission,
		Passed: o.Name == schema.OutcomePassed,

		Explanation: r.Explanation, Device: device(&r.System), Harness: r.Harness,
		Ambiguous: r.Ambiguous, SharedJudge: r.SharedJudge, SelfChecked: r.SelfChecked,
	}
	for _, run := range r.Runs {
		v.Runs = append(v.Runs, runOf(run.Name, &run.EvalResult))
		v.Runs[len(v.Runs)-1].measured(r.Measurements)
	}
	return v
}

// OfRanked is [Of] with the score under a ranking, one of [schema.Rankings]
// ("" is last).
func OfRanked(r *schema.Result, ranking string) *Verdict {
	v := Of(r)
	ranking = cmp.Or(ranking, schema.RankLast)
	switch seconds, err := score(r, ranking); {
	case err == nil:
		v.Score = &Ranked{Seconds: seconds, Ranking: ranking}
	case !errors.Is(err, ErrNoScore):
		v.NoScore = err.Error()
	}
	return v
}

// Words are the outcome on one line, and whether another try is worth while:
// "wrong: a case failed its check: the answer is wrong".
func (v *Verdict) Words() string {
	s, fault := text.Line(v.Outcome.Name, maxLine), text.Line(v.Outcome.Fault, maxLine)
	if v.Outcome.Text != "" {
		s += ": " + text.Line(v.Outcome.Text, maxLine)
	}
	switch {
	case v.Judged:
	case v.Outcome.Retry:
		s += " (a fault of the " + fault + ", worth another try)"
	default:
		s += " (a fault of the " + fault + ")"
	}
	return s
}

// A fact is one line of a verdict: a label of ours, then text that testers or
// submissions wrote, which each form makes harmless in its own way. Either may be
// empty.
type fact struct{ label, quoted string }

// Bounds on what is shown of an explanation.
const (
	maxPrintedLines = 20
	maxNotRun       = 20 // cases of one reason, and reasons
)

// explained are the lines of the explanation, for those who read text.
func (v *Verdict) explained() (facts []fact) {
	x := v.Explanation
	if x == nil {
		return nil
	}
	if x.File != "" {
		facts = append(facts, fact{"at", x.File + ":" + strconv.Itoa(x.Line)})
	}
	add := func(label, quoted string) {
		if quoted != "" {
			facts = append(facts, fact{label, quoted})
		}
	}
	add("line", x.Source)
	if x.Error != "" && !strings.Contains(v.Outcome.Text, x.Error) {
		add("error", x.Error)
	}
	for _, f := range x.Traceback[:min(len(x.Traceback), schema.MaxFrames)] {
		add("frame", f)
	}
	add("expected", x.Expected)
	add("got", x.Got)
	if printed := strings.TrimSpace(text.Lines(x.Printed)); printed != "" {
		lines := strings.Split(printed, "\n")
		if over := len(lines) - maxPrintedLines; over > 0 {
			lines = lines[over:]
		}
		for _, line := range lines {
			add("printed", strings.ReplaceAll(line, "\t", " "))
		}
	}
	facts = append(facts, notRun(x.NotRun)...)
	add("withheld", x.Withheld)
	return facts
}

// notRun are the cases that were not run, those with one reason on one line.
func notRun(cases []schema.NotRun) (facts []fact) {
	for len(cases) > 0 && len(facts) < maxNotRun {
		why := cases[0].Why
		n := slices.IndexFunc(cases, func(c schema.NotRun) bool { return c.Why != why })
		if n < 0 {
			n = len(cases)
		}
		var names []string
		for _, c := range cases[:min(n, maxNotRun)] {
			names = append(names, text.Line(c.Case, 40))
		}
		if n > maxNotRun {
			names = append(names, fmt.Sprintf("and %d more", n-maxNotRun))
		}
		facts = append(facts, fact{"not run", text.Line(why, maxLine/2) + ": " + strings.Join(names, ", ")})
		cases = cases[n:]
	}
	if len(cases) > 0 {
		facts = append(facts, fact{fmt.Sprintf("and %d more not run", len(cases)), ""})
	}
	return facts
}

// closing are the lines behind the phases: score, device, harness, and what the
// reader can do.
func (v *Verdict) closing() (facts []fact) {
	switch {
	case v.NoScore != "":
		facts = append(facts, fact{"no score", v.NoScore})
	case v.Score != nil:
		facts = append(facts, fact{fmt.Sprintf("score %s (%s)", format.Score(v.Score.Seconds), v.Score.Ranking), ""})
	}
	if v.Device != "" {
		facts = append(facts, fact{"device", v.Device})
	}
	if h := v.Harness; h != nil {
		words := h.Name
		if h.Variant != "" {
			words += " (" + h.Variant + ")"
		}
		if h.Why != "" {
			words += ", " + h.Why
		}
		facts = append(facts, fact{"harness", words})
	}
	if v.SelfChecked && v.Passed {
		facts = append(facts, fact{schema.SelfCheckedText, ""})
	} else if v.SharedJudge {
		facts = append(facts, fact{"shared judge: the submission ran in a process that can write its report, or whose answers it believes", ""})
	}
	for _, a := range v.Ambiguous[:min(len(v.Ambiguous), maxAmbiguous)] {
		facts = append(facts, fact{"ambiguous", a})
	}
	if over := len(v.Ambiguous) - maxAmbiguous; over > 0 {
		facts = append(facts, fact{fmt.Sprintf("and %d more ambiguous", over), ""})
	}
	if n := v.Outcome.Next(); n != "" {
		facts = append(facts, fact{"what you can do: " + n, ""})
	}
	return facts
}

// render returns a fact on one line; clean makes its quoted text fit for the form.
func (f fact) render(clean func(string) string) string {
	switch {
	case f.quoted == "":
		return f.label
	case f.label == "":
		return clean(f.quoted)
	}
	return f.label + ": " + clean(f.quoted)
}

// device names what the job ran on: its GPU, else its processor.
func device(s *schema.SystemInfo) string {
	name := s.GPU
	if name == "" {
		return s.CPU
	}
	if s.DeviceCount > 1 {
		name = strconv.Itoa(s.DeviceCount) + " × " + name
	}
	return name
}

// measured adds the measurements of the result to the cases that they belong to.
func (r *Run) measured(all []schema.Measurement) {
	for i := range r.Cases {
		c := &r.Cases[i]
		number, err := strconv.Atoi(c.Key[strings.LastIndexByte(c.Key, '.')+1:])
		at := slices.IndexFunc(all, func(m schema.Measurement) bool { return m.Phase == r.Name && m.Case == number })
		if err == nil && c.Status == "" && at >= 0 {
			c.Samples, c.Measured = slices.Clone(all[at].Samples), &all[at]
		}
	}
}
