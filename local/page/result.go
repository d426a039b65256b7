package page

import (
	"cmp"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// maxResult bounds a result that is read for a page, bytes. Larger ones hold a
// profile's trace, and their verdict is in the meta-data.
const maxResult = 8 << 20

// A subject is what a build is about: which file of which task, where and in
// which mode, and what came of it. Launchers say it in meta-data, kbrun in its
// result.
type subject struct {
	Title   string     // "sort_py · right.py · test on CPU_BK"; empty: nobody says
	Verdict view.State // empty Text: there is none
	Score   string     // "12.3 µs"
}

// A resultFile is an artifact with a result and what that means.
type resultFile struct {
	page    string // path of the artifact's page
	result  *schema.Result
	verdict *verdict.Verdict
}

// resultFiles caches results: an artifact never changes.
type resultFiles struct {
	mu   sync.Mutex
	seen map[string]*resultFile // by artifact; nil: not a result
}

// resultOf returns the result in an artifact, nil if the artifact is not a
// result.
func (p *pages) resultOf(a *engine.Artifact) *resultFile {
	if a.State != engine.ArtifactFinished || path.Base(a.Path) != "result.json" || a.Size > maxResult {
		return nil
	}
	c := &p.resultFiles
	c.mu.Lock()
	defer c.mu.Unlock()
	if cached, ok := c.seen[a.ID]; ok {
		return cached
	}
	var out *resultFile
	if data, complete, err := readStart(p.engine.ArtifactFile(a.ID), maxResult); err == nil && complete {
		if r, err := schema.DecodeResult(data); err == nil {
			out = &resultFile{p.artifactPath(a), r, verdict.OfRanked(r, schema.RankGeom)}
		}
	}
	if c.seen == nil || len(c.seen) > 100 {
		c.seen = map[string]*resultFile{}
	}
	c.seen[a.ID] = out
	return out
}

// results returns the results of a build, oldest first.
func (p *pages) results(b *engine.Build) (out []*resultFile) {
	artifacts, _ := p.engine.BuildArtifacts(b.ID, false) // none: no results
	for i := range artifacts {
		if e := p.resultOf(&artifacts[i]); e != nil {
			out = append(out, e)
		}
	}
	return out
}

// subjectOf says what a build is about.
func (p *pages) subjectOf(b *engine.Build) subject {
	metadata := func(name string) string { return text.Line(b.MetaData[name], 100) }
	where := metadata("mode")
	if gpu := cmp.Or(metadata("gpu"), metadata("queue")); gpu != "" {
		where = strings.TrimSpace(where + " on " + gpu)
	}
	s := subject{Title: joined(metadata("task"), metadata("file"), where)}
	runID := b.MetaData["run_id"]
	if name := text.Line(b.MetaData["outcome:"+runID], 60); name != "" {
		s.Verdict = outcomeState(outcomeNamed(name))
	}
	s.Score = cmp.Or(metadata("score:"+runID), metadata("score"))
	for _, e := range slices.Backward(p.results(b)) {
		v := e.verdict
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

// outcomeState shows an outcome. A pass is "correct", because "passed" is a
// state of the build.
func outcomeState(o schema.Outcome) view.State {
	s := view.OutcomeState(o)
	if o.Fault == schema.FaultNone {
		s.Text = "correct"
	}
	return s
}

// A report is one result on the page of its build.
type report struct {
	view.Report
	Path  string // of the artifact's page
	Score string
	Facts []fact
}

func (p *pages) reports(b *engine.Build) (out []report) {
	var builder view.Builder
	for _, e := range p.results(b) {
		r := report{Report: builder.Report(e.result, e.verdict), Path: e.page}
		r.State = outcomeState(e.verdict.Outcome)
		if s := e.verdict.Score; s != nil {
			r.Score = format.Score(s.Seconds)
		}
		r.Facts = slices.DeleteFunc([]fact{
			{Name: "GPU type", Text: text.Line(e.verdict.GPUType, 100)},
			{Name: "Run", Text: text.Line(e.verdict.RunID, 100)},
		}, fact.empty)
		out = append(out, r)
	}
	return out
}

// reportStyle serves the style sheet of reports.
func reportStyle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(view.Style) // the client may have left
}
