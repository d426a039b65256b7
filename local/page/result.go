package page

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict"
)

// maxResult bounds a result that is read for a page, bytes. Larger ones hold a
// profile's trace, and their verdict is in the meta-data.
const maxResult = 8 << 20

// A subject is what a build is about: which file of which task, where and in
// which mode, and what came of it. Launchers say it in meta-data, kbrun in its
// result.
type subject struct {
	Title   string // "sort_py · right.py · test on CPU_BK"; empty: nobody says
	Verdict state  // empty Text: there is none
	Score   string // "12.3 µs"
}

// verdicts remembers what results say: an artifact never changes.
type verdicts struct {
	mu   sync.Mutex
	seen map[string]*verdict.Verdict // by artifact; nil: not a result
}

// of reads the result in an artifact, nil when there is none.
func (v *verdicts) of(e *engine.Engine, a *engine.Artifact) *verdict.Verdict {
	if a.State != engine.ArtifactFinished || path.Base(a.Path) != "result.json" || a.Size > maxResult {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, ok := v.seen[a.ID]; ok {
		return known
	}
	var out *verdict.Verdict
	if data, whole, err := readStart(e.ArtifactFile(a.ID), maxResult); err == nil && whole {
		if r, err := schema.DecodeResult(data); err == nil {
			out = verdict.OfRanked(r, schema.RankGeom)
		}
	}
	if v.seen == nil || len(v.seen) > 1000 {
		v.seen = map[string]*verdict.Verdict{}
	}
	v.seen[a.ID] = out
	return out
}

// results are the verdicts of a build, by artifact, oldest first.
func (p *pages) results(b *engine.Build) ([]engine.Artifact, []*verdict.Verdict) {
	artifacts, err := p.engine.BuildArtifacts(b.ID, false)
	if err != nil {
		return nil, nil
	}
	var files []engine.Artifact
	var out []*verdict.Verdict
	for i := range artifacts {
		if v := p.verdicts.of(p.engine, &artifacts[i]); v != nil {
			files, out = append(files, artifacts[i]), append(out, v)
		}
	}
	return files, out
}

// subjectOf says what a build is about.
func (p *pages) subjectOf(b *engine.Build) subject {
	said := func(names ...string) string {
		for _, name := range names {
			if value := text.Line(b.MetaData[name], 100); value != "" {
				return value
			}
		}
		return ""
	}
	var s subject
	where := said("mode")
	if gpu := said("gpu", "queue"); gpu != "" {
		where = strings.TrimSpace(where + " on " + gpu)
	}
	var parts []string
	for _, part := range []string{said("task"), said("file"), where} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	s.Title = strings.Join(parts, " · ")
	runID := b.MetaData["run_id"]
	if name := text.Line(b.MetaData["outcome:"+runID], 60); name != "" {
		s.Verdict = outcomeState(outcomeNamed(name))
	}
	s.Score = said("score:"+runID, "score")
	_, all := p.results(b)
	for _, v := range slices.Backward(all) {
		if runID != "" && v.RunID != "" && v.RunID != runID {
			continue
		}
		s.Verdict = outcomeState(v.Outcome)
		if v.Score != nil {
			s.Score = format.Score(v.Score.Seconds)
		}
		break
	}
	return s
}

// outcomeNamed finds a known outcome; one that is not known is nobody's fault.
func outcomeNamed(name string) schema.Outcome {
	for _, o := range schema.Outcomes() {
		if o.Name == name {
			return o
		}
	}
	return schema.Outcome{Name: name}
}

// outcomeState shows an outcome: a pass, what the submitter has to change, and
// what is the fault of something else.
func outcomeState(o schema.Outcome) state {
	name := text.Line(o.Name, 60)
	switch o.Fault {
	case schema.FaultNone:
		return newState("correct", "good", "tick")
	case schema.FaultSubmission:
		return newState(strings.ReplaceAll(name, "-", " "), "bad", "cross")
	}
	return newState(strings.ReplaceAll(name, "-", " "), "warn", "dash")
}

// A resultView is one result on the page of its build.
type resultView struct {
	Path    string // of the artifact's page
	Verdict state
	Words   string
	Score   string
	Facts   []fact
	Runs    []runView
}

type runView struct {
	Name   string
	State  state
	Time   string
	Passed int
	Cases  []caseView
	More   int // cases that are not shown
	Output string
}

type caseView struct {
	Key, Spec, Message     string
	State                  state // empty Text for one that was timed
	Mean, Err, Best, Worst string
	Chart                  string // points of a line, "0,10 4,3 …"
	Samples                int
	ChartLow, ChartHigh    string
}

// maxCases bounds the cases of one phase on a page.
const maxCases = 100

func (p *pages) resultViews(b *engine.Build) []resultView {
	files, all := p.results(b)
	var out []resultView
	for i, v := range all {
		view := resultView{Path: p.artifactPath(&files[i]), Verdict: outcomeState(v.Outcome), Words: v.Words()}
		if v.Score != nil {
			view.Score = format.Score(v.Score.Seconds)
		}
		view.Facts = slices.DeleteFunc([]fact{
			{Name: "GPU type", Text: text.Line(v.GPUType, 100)},
			{Name: "Device", Text: text.Line(v.Device, 100)},
			{Name: "Run", Text: text.Line(v.RunID, 100)},
		}, fact.empty)
		for _, why := range v.Ambiguous {
			view.Facts = append(view.Facts, fact{Name: "Ambiguous", Text: text.Line(why, 200)})
		}
		if v.SelfChecked && v.Passed {
			view.Facts = append(view.Facts, fact{Name: "Note", Text: schema.SelfCheckedText})
		}
		for j := range v.Runs {
			view.Runs = append(view.Runs, runOf(&v.Runs[j]))
		}
		out = append(out, view)
	}
	return out
}

func runOf(r *verdict.Run) runView {
	view := runView{Name: text.Line(r.Name, 60), Time: format.Duration(format.Seconds(r.Seconds)), Output: text.Shorten(text.Lines(r.Output), 4000)}
	switch r.Status {
	case verdict.Passed:
		view.State = newState(r.Status, "good", "tick")
	case verdict.NotRun:
		view.State, view.Time = newState("not run", "gone", "dash"), ""
	default:
		view.State = newState(strings.ReplaceAll(r.Status, "-", " "), "bad", "cross")
	}
	for i := range r.Cases {
		c := &r.Cases[i]
		if c.Passed() {
			view.Passed++
		}
		if len(view.Cases) == maxCases {
			view.More++
			continue
		}
		view.Cases = append(view.Cases, caseOf(c))
	}
	return view
}

func caseOf(c *verdict.Case) caseView {
	view := caseView{
		Key: text.Line(c.Key, 60), Spec: text.Line(c.Spec, 200), Message: text.Shorten(text.Lines(c.Message), 1000),
		Mean: verdict.Time(c.Mean), Err: verdict.Time(c.Err), Best: verdict.Time(c.Best), Worst: verdict.Time(c.Worst),
	}
	switch {
	case c.Passed():
		view.State = newState("pass", "good", "tick")
	case c.Status != "":
		view.State = newState(text.Line(c.Status, 30), "bad", "cross")
	}
	view.Chart, view.ChartLow, view.ChartHigh = chart(c.Samples)
	view.Samples = len(c.Samples)
	return view
}

// chartPoints bounds the points of a chart, chartWidth and chartHeight are its
// size in its own units.
const (
	chartPoints = 120
	chartWidth  = 240
	chartHeight = 36
)

// chart draws samples, in nanoseconds, as the points of a line: each the mean of
// its share. Two samples are the least there is to see.
func chart(samples []float64) (points, low, high string) {
	samples = slices.DeleteFunc(slices.Clone(samples), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || v < 0 })
	if len(samples) < 2 {
		return "", "", ""
	}
	n := min(len(samples), chartPoints)
	values := make([]float64, n)
	for i := range values {
		share := samples[i*len(samples)/n : (i+1)*len(samples)/n]
		for _, v := range share {
			values[i] += v / float64(len(share))
		}
	}
	least, most := slices.Min(values), slices.Max(values)
	var b strings.Builder
	for i, v := range values {
		y := float64(chartHeight) / 2
		if most > least {
			y = 2 + (chartHeight-4)*(1-(v-least)/(most-least))
		}
		fmt.Fprintf(&b, "%.1f,%.1f ", float64(i)*chartWidth/float64(n-1), y)
	}
	return strings.TrimSpace(b.String()), format.Time(least), format.Time(most)
}

// heading is what a build is called on its own page.
func (s *subject) heading(b *engine.Build) string {
	return cmp.Or(s.Title, withEmoji(firstLine(b.Message, 200)), fmt.Sprintf("Build %d", b.Number))
}
