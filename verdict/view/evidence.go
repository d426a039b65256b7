package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict"
)

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
		add("Judge", words)
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

func guardWords(held []string) string {
	var out []string
	for _, g := range schema.Guards() {
		if slices.Contains(held, g.Name) {
			out = append(out, g.Name)
		}
	}
	return strings.Join(out, ", ")
}
