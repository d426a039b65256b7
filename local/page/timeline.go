package page

import (
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema/format"
)

// A timeline shows when the jobs of a build waited and ran.
type timeline struct {
	Rows  []timelineRow
	Total string
	Ticks []tick
	More  int // jobs that are not shown
}

type timelineRow struct {
	Label, Path string
	Tone        string // class of the bar
	Words       string // "waited 12 ms, ran 1.2 s"
	// Percent of the whole, as the attributes of the drawing want them.
	WaitAt, WaitWidth, RunAt, RunWidth string
}

type tick struct{ At, Text string }

// maxTimeline bounds the rows.
const maxTimeline = 200

// timeline draws a build from its creation to its end, or to now.
func (p *pages) timeline(b *engine.Build) *timeline {
	begin, end := b.CreatedAt, b.FinishedAt
	if !b.Over() && !b.Blocked { // a person may take any time
		end = p.engine.Now()
	}
	for i := range b.Jobs { // a retry may come after the end of a build
		if at := b.Jobs[i].FinishedAt; at.After(end) {
			end = at
		}
	}
	length := end.Sub(begin)
	if length <= 0 {
		return nil
	}
	percent := func(d time.Duration) string {
		return fmt.Sprintf("%.3f%%", min(max(100*float64(d)/float64(length), 0), 100))
	}
	out := &timeline{Total: format.Duration(length)}
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if j.Type != engine.TypeScript && j.Type != engine.TypeTrigger || j.RunnableAt.IsZero() {
			continue
		}
		if len(out.Rows) == maxTimeline {
			out.More++
			continue
		}
		started, finished := j.StartedAt, j.FinishedAt
		if finished.IsZero() {
			finished = end
		}
		if started.IsZero() {
			started = finished
		}
		row := timelineRow{
			Label: withEmoji(j.Name(b.Env)), Path: p.jobPath(j), Tone: jobState(j).Tone,
			WaitAt: percent(j.RunnableAt.Sub(begin)), WaitWidth: percent(started.Sub(j.RunnableAt)),
			RunAt: percent(started.Sub(begin)), RunWidth: percent(finished.Sub(started)),
			Words: "waited " + format.Duration(started.Sub(j.RunnableAt)),
		}
		if j.Type == engine.TypeTrigger {
			row.Path = p.buildPath(b.Pipeline, b.Number)
		}
		if !j.StartedAt.IsZero() {
			row.Words += ", ran " + format.Duration(finished.Sub(started))
		}
		out.Rows = append(out.Rows, row)
	}
	if len(out.Rows) == 0 {
		return nil
	}
	for i := range 5 {
		out.Ticks = append(out.Ticks, tick{At: fmt.Sprintf("%d%%", 25*i), Text: tickText(length * time.Duration(i) / 4)})
	}
	return out
}

// tickText is finer than duration, since a quarter of little is less.
func tickText(d time.Duration) string {
	if d > 0 && d < time.Second {
		return format.Time(float64(d))
	}
	return format.Duration(d)
}
