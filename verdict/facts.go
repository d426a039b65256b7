package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
)

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

// measured adds the samples of the result to the cases that they belong to.
func (r *Run) measured(all []schema.Measurement) {
	for i := range r.Cases {
		c := &r.Cases[i]
		if number, err := strconv.Atoi(c.Key[strings.LastIndexByte(c.Key, '.')+1:]); err == nil && c.Status == "" {
			c.Samples = slices.Clone(samplesOf(all, r.Name, number))
		}
	}
}
