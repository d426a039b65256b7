package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict"
)

// compareCmd compares the times of two results, case by case.
type compareCmd struct {
	Older string `arg:"" name:"old"`
	Newer string `arg:"" name:"new"`
	JSON  bool   `name:"json"`
	clientFlags
}

// What --json prints.
type (
	compareJSON struct {
		Old      sideJSON          `json:"old"`
		New      sideJSON          `json:"new"`
		Phase    string            `json:"phase" jsonschema:"leaderboard or benchmark"`
		Cases    []caseCompareJSON `json:"cases"`
		Geomean  *geomeanJSON      `json:"geomean,omitempty" jsonschema:"over the cases that both have"`
		Warnings []string          `json:"warnings" jsonschema:"why the two may not be comparable"`
	}
	sideJSON struct {
		Name    string `json:"name" jsonschema:"as given"`
		Outcome string `json:"outcome"`
		GPUType string `json:"gpu_type,omitempty"`
		Device  string `json:"device,omitempty"`
		Harness string `json:"harness,omitempty"`
	}
	caseCompareJSON struct {
		Spec  string     `json:"spec" jsonschema:"parameters of the case"`
		Old   *timeJSON  `json:"old,omitempty"`
		New   *timeJSON  `json:"new,omitempty"`
		Delta *deltaJSON `json:"delta,omitempty"`
	}
	timeJSON struct {
		NS      float64 `json:"ns" jsonschema:"median of the samples; without samples the mean"`
		Low     float64 `json:"low_ns" jsonschema:"of the 95 % confidence interval"`
		High    float64 `json:"high_ns"`
		Samples int     `json:"samples" jsonschema:"0: the harness kept none"`
	}
	deltaJSON struct {
		Percent     float64 `json:"percent" jsonschema:"below 0: the new one is faster"`
		P           float64 `json:"p" jsonschema:"chance of such a difference between equals"`
		Significant bool    `json:"significant" jsonschema:"p below 0.05"`
	}
	geomeanJSON struct {
		OldNS   float64 `json:"old_ns"`
		NewNS   float64 `json:"new_ns"`
		Percent float64 `json:"percent"`
	}
)

func (c *compareCmd) Run(ctx context.Context, env *cli.Env) error {
	var sides [2]*verdict.Verdict
	var client *launcher.Client
	for i, name := range []string{c.Older, c.Newer} {
		result, err := readResult(name)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		if result == nil {
			if client == nil {
				if client, err = c.client(env); err != nil {
					return cli.WithHint(err, "%s is no file, so it would be a build or a run; for those put a token into %s", name, tokenVar)
				}
			}
			if result, err = fetchResult(ctx, client, name); err != nil {
				return err
			}
		}
		sides[i] = verdict.Of(result)
	}
	compared, err := compare(sides[0], sides[1])
	if err != nil {
		return &cli.ExitError{Status: exitTrouble, Err: err}
	}
	compared.Old.Name, compared.New.Name = c.Older, c.Newer
	if c.JSON {
		return cli.PrintJSON(env.Stdout, compared)
	}
	return compared.write(env.Stdout)
}

// readResult reads a result.json, or what submit --json printed of one run; nil
// when there is no such file.
func readResult(name string) (*schema.Result, error) {
	f, err := os.Open(name)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, schema.MaxResult+1))
	if err != nil {
		return nil, err
	}
	var doc documentJSON
	if json.Unmarshal(data, &doc) == nil && len(doc.Runs) > 0 {
		if len(doc.Runs) > 1 || doc.Runs[0].Result == nil {
			return nil, fmt.Errorf("%s: got %d runs, want one with a result", name, len(doc.Runs))
		}
		data = doc.Runs[0].Result
	}
	result, err := schema.DecodeResult(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return result, nil
}

func fetchResult(ctx context.Context, client *launcher.Client, name string) (*schema.Result, error) {
	run, err := open(ctx, client, name)
	if err != nil {
		return nil, err
	}
	e := collect(ctx, client, []*launcher.Run{run}, nil)[0]
	if e.err != nil {
		return nil, trouble(ctx, e.err)
	}
	return e.report.Result, nil
}

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

// compare sets the cases of two verdicts side by side.
//
// Error: no phase that both timed.
func compare(older, newer *verdict.Verdict) (*compareJSON, error) {
	out := &compareJSON{Old: side(older), New: side(newer), Cases: []caseCompareJSON{}, Warnings: []string{}}
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

func side(v *verdict.Verdict) sideJSON {
	s := sideJSON{Outcome: v.Outcome.Name, GPUType: v.GPUType, Device: text.Line(v.Device, 100)}
	if v.Harness != nil {
		s.Harness = text.Line(v.Harness.Name, 40)
	}
	return s
}

// pair matches cases by their parameters, which cases of one task share but for
// a seed that was mixed in: then by their place.
func (out *compareJSON) pair(older, newer []verdict.Case) {
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
		line := caseCompareJSON{Spec: text.Line(older[i].Spec, 200), Old: timeOf(&older[i])}
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
			out.Cases = append(out.Cases, caseCompareJSON{Spec: text.Line(newer[i].Spec, 200), New: timeOf(&newer[i])})
		}
	}
	for _, why := range slices.Sorted(maps.Keys(few)) {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d of %d cases: %s", few[why], len(out.Cases), why))
	}
	if both > 1 {
		a, b := math.Exp(logOld/float64(both)), math.Exp(logNew/float64(both))
		out.Geomean = &geomeanJSON{OldNS: a, NewNS: b, Percent: (b/a - 1) * 100}
	}
}

func (out *compareJSON) write(w io.Writer) error {
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
