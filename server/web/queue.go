package web

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/verdict/view"
)

type queuePage struct{ GPUs []gpuQueue }

// A gpuQueue is what one GPU type has to do.
type gpuQueue struct {
	gpuLine
	ID       string // of the heading
	Off      string
	Machines string
	Typical  string
	Expected string // until a run that is handed in now begins
	Runs     []queued
	Hidden   int // runs that are not listed
}

type queued struct {
	Place     string
	Running   bool
	Mine      bool
	Path      string // "" for what the viewer may not open
	ID        int64
	Board     string
	BoardPath string
	Mode      string
	Runs      int // of the submission, one behind the other
	Since     view.Moment
	Expected  string
}

func (s *site) queue(r *request) error {
	line, err := s.Backend.Line(r.Context(), r.viewer)
	if err != nil {
		return err
	}
	page := queuePage{}
	for i := range line {
		page.GPUs = append(page.GPUs, newQueue(&line[i], r, i))
	}
	slices.SortStableFunc(page.GPUs, func(a, b gpuQueue) int { return cmp.Compare(placeOf(a.GPU), placeOf(b.GPU)) })
	return s.render(r, 200, frame{Page: "queue", Title: "Queue", Here: "queue", Events: "/events/queue", Refresh: 30, Content: page})
}

func newQueue(g *backend.GPUStatus, r *request, i int) gpuQueue {
	q := gpuQueue{gpuLine: newLine(g), ID: fmt.Sprintf("gpu-%d", i), Off: view.Sentence(g.Off), Machines: machines(g), Hidden: max(g.Running+g.Waiting-len(g.Runs), 0)}
	if g.Typical > 0 {
		q.Typical = format.Duration(g.Typical)
	}
	if g.Off == "" && (!g.Known || g.Agents > 0) {
		if q.Expected = about(expected(g, g.Waiting)); q.Expected != "" {
			q.Expected = "in " + q.Expected
		}
		if q.Expected == "" && g.Waiting == 0 && g.Known && g.Busy < g.Agents {
			q.Expected = "at once"
		}
	}
	waits := 0
	for i, run := range g.Runs {
		if !run.Running {
			waits++
		}
		if i > 0 && g.Runs[i-1].Submission == run.Submission && g.Runs[i-1].Running == run.Running {
			q.Runs[len(q.Runs)-1].Runs++
			continue
		}
		line := queued{Running: run.Running, ID: run.Submission, Board: name(run.Board), BoardPath: boardPath(run.Board, g.GPU), Mode: view.Mode(run.Mode),
			Runs: 1, Since: newMoment(run.Since, r.now), Mine: r.viewer.ID != "" && run.UserID == r.viewer.ID}
		if line.Mine || r.viewer.Admin {
			line.Path = submissionPath(run.Submission)
		}
		if !run.Running {
			line.Place = fmt.Sprint(waits)
			line.Expected = about(expected(g, waits-1))
		}
		q.Runs = append(q.Runs, line)
	}
	return q
}

// expected is how long a run waits that has so many waiting ones before it, by what
// such runs took lately; 0: unknown, or not at all.
func expected(g *backend.GPUStatus, before int) time.Duration {
	if g.Typical <= 0 {
		return 0
	}
	machines := 1
	if g.Known && g.Agents > 0 {
		machines = g.Agents
	}
	if free := machines - g.Running; before < free {
		return 0
	}
	return g.Typical * time.Duration(before+1) / time.Duration(machines)
}

func machines(g *backend.GPUStatus) string {
	if !g.Known {
		return "not known"
	}
	words := format.Count(g.Agents, "machine")
	if g.Busy > 0 {
		words += fmt.Sprintf(", %s busy", format.Number(g.Busy))
	}
	if g.Paused > 0 {
		words += fmt.Sprintf(", %s more paused", format.Number(g.Paused))
	}
	return words
}
