package job

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict"
)

// logger writes the job's log for people. What it says of the result comes from
// package verdict, which cleans foreign text and begins no line with it.
type logger struct {
	w       io.Writer
	ranking *atomic.Value // the payload's, a string; it may come while the verdict is written
}

func (l logger) start(runID string, p *schema.Payload) {
	l.ranking.Store(p.RankingBy)
	if runID == "" {
		runID = "no run id"
	}
	fmt.Fprintf(l.w, "--- Evaluating %s: %s, mode %s, %d tests, %d benchmarks\n", runID, p.Lang, p.Mode, len(p.Tests), len(p.Benchmarks))
}

// budget says so when the task's limits allow more time than the job has.
func (l logger) budget(p *schema.Payload, c clock) {
	if c.deadline.IsZero() {
		return
	}
	have := time.Until(c.deadline).Round(time.Second)
	switch budget, limited := p.Budget(); {
	case !limited:
		fmt.Fprintf(l.w, "  the task sets no limit; the job ends in %s\n", have)
	case budget > have:
		fmt.Fprintf(l.w, "  the task's limits allow %s in all; the job ends in %s\n", budget, have)
	}
}

func (l logger) phase(name string, result *schema.EvalResult) {
	if result == nil {
		fmt.Fprintf(l.w, "--- Phase %s\n", name)
		return
	}
	io.WriteString(l.w, verdict.PhaseLog(name, result))
}

// of is the verdict with the score that the payload's ranking gives it.
func (l logger) of(r *schema.Result) *verdict.Verdict {
	ranking, _ := l.ranking.Load().(string)
	return verdict.OfRanked(r, ranking)
}

func (l logger) verdict(r *schema.Result) {
	io.WriteString(l.w, l.of(r).Log())
	if r.Sandbox != nil {
		fmt.Fprintf(l.w, "  sandbox: %s\n", sandbox.Words(r.Sandbox))
	}
}

// lineLimit is how much of a foreign text a line shows, in characters.
const lineLimit = 300

// Shown is foreign text as one line for a terminal and a log.
func Shown(s string) string { return text.Line(s, lineLimit) }
