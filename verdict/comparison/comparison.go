// Package comparison sets the times of two results side by side, case by case, and
// says which of them differ. It is pure.
package comparison

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict"
)

type (
	// A Comparison is of two results.
	Comparison struct {
		Old      Side     `json:"old"`
		New      Side     `json:"new"`
		Phase    string   `json:"phase" jsonschema:"leaderboard or benchmark"`
		Cases    []Case   `json:"cases"`
		Geomean  *Geomean `json:"geomean,omitempty" jsonschema:"over the cases that both have"`
		Warnings []string `json:"warnings" jsonschema:"why the two may not be comparable"`
	}
	// A Side is one of them.
	Side struct {
		Name    string `json:"name" jsonschema:"as given"`
		Outcome string `json:"outcome"`
		GPUType string `json:"gpu_type,omitempty"`
		Device  string `json:"device,omitempty"`
		Harness string `json:"harness,omitempty"`
	}
	// A Case has the times of both sides.
	Case struct {
		Spec  string `json:"spec" jsonschema:"parameters of the case"`
		Old   *Time  `json:"old,omitempty"`
		New   *Time  `json:"new,omitempty"`
		Delta *Delta `json:"delta,omitempty"`
	}
	// A Time has its confidence interval.
	Time struct {
		NS      float64 `json:"ns" jsonschema:"median of the samples; without samples the mean"`
		Low     float64 `json:"low_ns" jsonschema:"of the 95 % confidence interval"`
		High    float64 `json:"high_ns"`
		Samples int     `json:"samples" jsonschema:"0: the harness kept none"`
	}
	// A Delta is how far two times differ.
	Delta struct {
		Percent     float64 `json:"percent" jsonschema:"below 0: the new one is faster"`
		P           float64 `json:"p" jsonschema:"chance of such a difference between equals"`
		Significant bool    `json:"significant" jsonschema:"p below 0.05"`
	}
	// A Geomean is the geometric mean of both sides.
	Geomean struct {
		OldNS   float64 `json:"old_ns"`
		NewNS   float64 `json:"new_ns"`
		Percent float64 `json:"percent"`
	}
)

// timedPhases are where times come from, the best first.
var timedPhases = []string{schema.ModeLeaderboard, schema.ModeBenchmark}

func phase(v *verdict.Verdict, name string) *verdict.Run {
	for i := range v.Runs {
		if v.Runs[i].Name == name {
			return &v.Runs[i]
		}
	}
	return nil
}

// Compare sets the cases of two verdicts side by side.
//
// Error: no phase that both timed.
func Compare(older, newer *verdict.Verdict) (*Comparison, error) {
	out := &Comparison{Old: side(older), New: side(newer), Cases: []Case{}, Warnings: []string{}}
	var a, b *verdict.Run
	for _, name := range timedPhases {
		if a, b = phase(older, name), phase(newer, name); a != nil && b != nil {
			out.Phase = name
			break
		}
	}
	if out.Phase == "" {
		return nil, fmt.Errorf("the two have no phase in common that was timed: %s and %s; submit with --mode benchmark or leaderboard", older.Words(), newer.Words())
	}
	for what, pair := range map[string][2]string{
		"GPU type": {out.Old.GPUType, out.New.GPUType}, "device": {out.Old.Device, out.New.Device}, "harness": {out.Old.Harness, out.New.Harness},
	} {
		if pair[0] != pair[1] {
			out.Warnings = append(out.Warnings, fmt.Sprintf("another %s: %s and %s", what, cmp.Or(pair[0], "unknown"), cmp.Or(pair[1], "unknown")))
		}
	}
	for i, v := range []*verdict.Verdict{older, newer} {
		for _, why := range v.Ambiguous {
			out.Warnings = append(out.Warnings, []string{"old", "new"}[i]+": ambiguous: "+text.Line(why, 200))
		}
	}
	slices.Sort(out.Warnings)
	out.pair(a.Cases, b.Cases)
	return out, nil
}

func side(v *verdict.Verdict) Side {
	s := Side{Outcome: v.Outcome.Name, GPUType: v.GPUType, Device: text.Line(v.Device, 100)}
	if v.Harness != nil {
		s.Harness = text.Line(v.Harness.Name, 40)
	}
	return s
}

// pair matches cases by their parameters, which cases of one task share but for
// a seed that was mixed in: then by their place.
func (out *Comparison) pair(older, newer []verdict.Case) {
	used := map[int]bool{}
	find := func(c *verdict.Case, at int) *verdict.Case {
		for i := range newer {
			if !used[i] && newer[i].Spec == c.Spec {
				used[i] = true
				return &newer[i]
			}
		}
		if len(older) == len(newer) && !used[at] {
			used[at] = true
			return &newer[at]
		}
		return nil
	}
	logOld, logNew, both := 0.0, 0.0, 0
	few := map[string]int{} // cases by why they can show no change
	for i := range older {
		line := Case{Spec: text.Line(older[i].Spec, 200), Old: timeOf(&older[i])}
		if other := find(&older[i], i); other != nil {
			line.New = timeOf(other)
			if line.Old != nil && line.New != nil {
				var warnings []error
				line.Delta, warnings = delta(&older[i], other, line.Old, line.New)
				for _, why := range warnings {
					few[why.Error()]++
				}
				logOld, logNew, both = logOld+math.Log(line.Old.NS), logNew+math.Log(line.New.NS), both+1
			}
		}
		out.Cases = append(out.Cases, line)
	}
	for i := range newer {
		if !used[i] {
			out.Cases = append(out.Cases, Case{Spec: text.Line(newer[i].Spec, 200), New: timeOf(&newer[i])})
		}
	}
	for _, why := range slices.Sorted(maps.Keys(few)) {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d of %d cases: %s", few[why], len(out.Cases), why))
	}
	if both > 1 {
		a, b := math.Exp(logOld/float64(both)), math.Exp(logNew/float64(both))
		out.Geomean = &Geomean{OldNS: a, NewNS: b, Percent: (b/a - 1) * 100}
	}
}

// Write writes the comparison as a table.
func (out *Comparison) Write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s\tOLD\tNEW\tDELTA\n", out.Phase)
	for _, c := range out.Cases {
		d := ""
		if c.Delta != nil {
			d = fmt.Sprintf("~ (p=%.3f)", c.Delta.P)
			if c.Delta.Significant {
				d = fmt.Sprintf("%+.2f%% (p=%.3f)", c.Delta.Percent, c.Delta.P)
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", c.Spec, c.Old, c.New, d)
	}
	if g := out.Geomean; g != nil {
		fmt.Fprintf(table, "geomean\t%s\t%s\t%+.2f%%\n", format.Time(g.OldNS), format.Time(g.NewNS), g.Percent)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, warning := range out.Warnings {
		if _, err := fmt.Fprintf(w, "warning: %s\n", warning); err != nil {
			return err
		}
	}
	return nil
}
