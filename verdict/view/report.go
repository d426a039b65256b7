package view

import (
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict"
	"github.com/gpu-mode/kbgen/verdict/view/chart"
)

const (
	maxName    = 60  // runes of a name
	maxCases   = 100 // of a phase that a page shows
	maxCharts  = 40  // on one page
	maxMessage = 2_000
	maxOutput  = 8_000
)

// A Report is what one evaluation said.
type Report struct {
	State     State
	Words     string
	Next      string
	Where     string // "submission.py, line 12"
	Quotes    []Quote
	Phases    []Phase
	Machine   []Term
	Trust     []Term
	Ambiguous []string
}

// A Quote is a text of the submission or the tester, of several lines.
type Quote struct{ Name, Text string }

// A Phase is one phase of the evaluation.
type Phase struct {
	ID      string // of its element
	Name    string
	State   State
	Lasted  string
	Passed  int
	Cases   []Case
	More    int // cases that are not shown
	Output  string
	HasTime bool
	Open    bool
}

// A Case is one test or benchmark.
type Case struct {
	Key, Spec     string
	State         State // empty for a benchmark that was timed
	Mean, Err     string
	Best, Worst   string
	Interval      string
	Message       string
	Chart         template.HTML
	Profile       string
	Samples       int
	Floor, Remark string
}

// A Builder makes the reports of one page, which share a number of charts and
// have elements of their own.
type Builder struct{ reports, charts int }

// Report presents a result, whose verdict is v.
func (b *Builder) Report(r *schema.Result, v *verdict.Verdict) Report {
	out := Report{State: OutcomeState(v.Outcome), Words: Sentence(v.Words()), Next: v.Outcome.Next()}
	for _, d := range v.Ambiguous {
		out.Ambiguous = append(out.Ambiguous, Sentence(d))
	}
	out.explain(v.Explanation)
	for i := range v.Runs {
		out.Phases = append(out.Phases, b.phase(&v.Runs[i], fmt.Sprintf("r%dp%d", b.reports, i)))
	}
	out.Machine = machine(r)
	out.Trust = trust(r, v)
	b.reports++
	return out
}

func (p *Report) explain(e *schema.Explanation) {
	if e == nil {
		return
	}
	if e.File != "" {
		p.Where = text.Line(e.File, maxName)
		if e.Line > 0 {
			p.Where += ", line " + strconv.Itoa(e.Line)
		}
	}
	for _, q := range []Quote{
		{"Line", e.Source}, {"Error", e.Error}, {"Traceback", strings.Join(e.Traceback, "\n")}, {"Expected", e.Expected}, {"Got", e.Got},
		{"Printed", e.Printed}, {"Left out", e.Withheld},
	} {
		if q.Text = block(q.Text, maxMessage); q.Text != "" {
			p.Quotes = append(p.Quotes, q)
		}
	}
}

// block makes foreign text of several lines fit for a page.
func block(s string, limit int) string {
	return strings.TrimRight(text.Shorten(text.Lines(s), limit), "\n ")
}

func (b *Builder) phase(run *verdict.Run, id string) Phase {
	p := Phase{ID: id, Name: Mode(run.Name), State: phaseState(run.Status), Output: tail(run.Output, maxOutput)}
	if run.Seconds > 0 {
		p.Lasted = format.Duration(format.Seconds(run.Seconds))
	}
	for i := range run.Cases {
		c := &run.Cases[i]
		if c.Passed() {
			p.Passed++
		}
		if len(p.Cases) == maxCases {
			p.More++
			continue
		}
		line := b.testCase(c, id+"c"+strconv.Itoa(i))
		p.HasTime = p.HasTime || line.Mean != ""
		p.Cases = append(p.Cases, line)
	}
	p.Open = p.HasTime || run.Status != verdict.Passed && run.Status != verdict.NotRun
	return p
}

// tail keeps the end of a text.
func tail(s string, limit int) string {
	s = strings.TrimRight(text.Lines(s), "\n ")
	if runes := []rune(s); len(runes) > limit {
		return "…" + string(runes[len(runes)-limit:])
	}
	return s
}

func (b *Builder) testCase(c *verdict.Case, id string) Case {
	line := Case{
		Key: text.Line(c.Key, maxName), Spec: text.Line(c.Spec, 300), State: caseState(c), Message: block(c.Message, maxMessage), Profile: block(c.Profile, maxOutput),
		Mean: verdict.Time(c.Mean), Err: verdict.Time(c.Err), Best: verdict.Time(c.Best), Worst: verdict.Time(c.Worst), Samples: len(c.Samples),
	}
	if m := c.Measured; m != nil {
		if m.Interval[1] > 0 {
			line.Interval = format.Time(m.Interval[0]) + " – " + format.Time(m.Interval[1])
		}
		if m.Floor > 0 {
			line.Floor = format.Time(m.Floor)
		}
		if m.Overlaps {
			line.Remark = "One call was worked on during another."
		}
	}
	if b.charts >= maxCharts || len(c.Samples) < 2 {
		return line
	}
	b.charts++
	unit, per := unitOf(slices.Max(c.Samples))
	samples := make([]float64, len(c.Samples))
	for i, v := range c.Samples {
		samples[i] = v / per
	}
	mean, _ := strconv.ParseFloat(c.Mean, 64) // 0: no line
	line.Chart = chart.Strip{ID: id, Title: "Samples of " + line.Key, Unit: unit, Samples: samples, Mean: mean / per}.SVG()
	return line
}

// unitOf is the unit in which nanoseconds are shown, and how many it has.
func unitOf(ns float64) (unit string, per float64) {
	switch {
	case ns >= 1e9:
		return "s", 1e9
	case ns >= 1e6:
		return "ms", 1e6
	case ns >= 1e3:
		return "µs", 1e3
	}
	return "ns", 1
}

// machine says what an evaluation ran on. Names of hosts and numbers of devices are
// the vendor's business and not told.
func machine(r *schema.Result) (out []Term) {
	add := func(name string, parts ...string) {
		parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
		if words := text.Line(strings.Join(parts, ", "), 300); words != "" {
			out = append(out, Term{name, words})
		}
	}
	gpu := r.System.GPU
	if r.System.DeviceCount > 1 && gpu != "" {
		gpu = fmt.Sprintf("%d × %s", r.System.DeviceCount, gpu)
	}
	add("GPU", gpu)
	if d := r.Device; d != nil {
		add("Driver", d.Driver, prefixed("CUDA ", d.Runtime))
		add("Clock", clocks(d.Sampling))
		add("Power and heat", warmth(d.Sampling))
		add("Slowed down", throttled(d.Sampling))
		add("Faults", d.Faults...)
	}
	add("Processor", r.System.CPU)
	add("Software", prefixed("torch ", r.System.Torch), r.System.Runtime)
	if v := r.Versions; v != nil {
		add("Tools", prefixed("kbrun ", v.Runner), prefixed("Python ", v.Python), v.Compiler)
		add("Image", v.Image)
	}
	if t := r.Timing; t != nil && t.Total > 0 {
		add("Took", format.Duration(format.Seconds(t.Total))+" in all")
	}
	return out
}

func prefixed(before, s string) string {
	if s == "" {
		return ""
	}
	return before + s
}

// clocks is the span of the GPU's clock over all phases.
func clocks(all []schema.Sampling) string {
	low, high := spread(all, func(s *schema.Sampling) schema.Spread { return s.ClockSM })
	switch {
	case high <= 0:
		return ""
	case low == high:
		return fmt.Sprintf("%.0f MHz", high)
	}
	return fmt.Sprintf("%.0f to %.0f MHz", low, high)
}

func warmth(all []schema.Sampling) string {
	var parts []string
	if _, high := spread(all, func(s *schema.Sampling) schema.Spread { return s.PowerW }); high > 0 {
		parts = append(parts, fmt.Sprintf("up to %.0f W", high))
	}
	if _, high := spread(all, func(s *schema.Sampling) schema.Spread { return s.Temperature }); high > 0 {
		parts = append(parts, fmt.Sprintf("up to %.0f °C", high))
	}
	return strings.Join(parts, ", ")
}

func spread(all []schema.Sampling, of func(*schema.Sampling) schema.Spread) (low, high float64) {
	for i := range all {
		s := of(&all[i])
		if all[i].Samples == 0 || s.Max <= 0 {
			continue
		}
		if low == 0 || s.Min < low {
			low = s.Min
		}
		high = max(high, s.Max)
	}
	return low, high
}

func throttled(all []schema.Sampling) string {
	var reasons []string
	for i := range all {
		for _, c := range all[i].Throttle {
			if c.Samples > 0 && !slices.Contains(reasons, c.Reason) {
				reasons = append(reasons, c.Reason)
			}
		}
	}
	return strings.Join(reasons, ", ")
}

// trust says how far a result can be believed: who judged, what the submission was
// kept from, and who could write the report.
func trust(r *schema.Result, v *verdict.Verdict) (out []Term) {
	add := func(name, words string) {
		if words = text.Line(words, 600); words != "" {
			out = append(out, Term{name, words})
		}
	}
	if h := r.Harness; h != nil {
		words := map[string]string{schema.HarnessIsolated: "separate from the submission", schema.HarnessLegacy: "the task's own harness"}[h.Name]
		if h.Variant != "" {
			words += ", rules of " + h.Variant
		}
		if h.Why != "" {
			words += ", because " + h.Why
		}
		if h.Proof != nil {
			words += ", proved to work on this GPU on " + h.Proof.Time.Format("2006-01-02")
		}
		add("Judge", words)
		add("Evidence", EvidenceWords(h.Inputs, h.Evidence))
	}
	switch {
	case v.SelfChecked:
		add("Who could write the report", schema.SelfCheckedText)
	case v.SharedJudge:
		add("Who could write the report", "the submission ran in a process that holds the report on it")
	case r.Harness != nil && r.Harness.Name == schema.HarnessIsolated:
		add("Who could write the report", "the judge alone")
	}
	if b := r.Sandbox; b != nil {
		add("Sandbox", b.Level+prefixed(" by ", b.Means))
		add("Kept from", guardWords(b.Held))
		var missing []string
		for _, m := range b.Missing {
			missing = append(missing, m.Name+" ("+m.Why+")")
		}
		add("Not kept from", strings.Join(missing, ", "))
	}
	if r.Retained {
		add("Remark", "An earlier try of the job judged, and could not hand the result over.")
	}
	return out
}

// EvidenceWords says what a task wants of its figures, "" for nothing.
func EvidenceWords(inputs string, e schema.MinEvidence) string {
	var words []string
	if e.Runs > 0 {
		words = append(words, fmt.Sprintf("Each figure of a ranked run rests on at least %d calls.", e.Runs))
	}
	if e.Width > 0 {
		words = append(words, fmt.Sprintf("No 95 %% interval is wider than %s %% of its mean.", strconv.FormatFloat(100*e.Width, 'g', 3, 64)))
	}
	switch inputs {
	case schema.InputsCold:
		words = append(words, "No cache holds a call's inputs.")
	case schema.InputsWarm:
		words = append(words, "Caches may hold a call's inputs.")
	}
	return strings.Join(words, " ")
}

func guardWords(held []string) string {
	var out []string
	for _, g := range schema.Guards() {
		if slices.Contains(held, g.Name) {
			out = append(out, g.Name)
		}
	}
	return strings.Join(out, ", ")
}
