package web

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
	"github.com/gpu-mode/kbgen/verdict/view"
	"github.com/gpu-mode/kbgen/verdict/view/chart"
)

const (
	maxCards    = 24 // boards that are shown with their leaders; the others are lines of a table
	leaderCount = 3
)

type startPage struct {
	About       string            // its beginning; "" without
	Open, Ended []backend.Leading // with leaders
	Older       []backend.Leading // ended, without
	Queue       []gpuLine
	Known       bool
}

// A gpuLine is the queue of one GPU type in one line.
type gpuLine struct {
	*backend.GPUStatus
	State view.State
}

func (s *site) start(r *request) error {
	ctx := r.Context()
	boards, err := s.Backend.Leading(ctx, r.viewer, leaderCount)
	if err != nil {
		return err
	}
	about, err := s.Backend.About(ctx)
	if err != nil {
		return err
	}
	page := startPage{Known: r.viewer.Known(), About: summary(about, 400)}
	shown := 0
	slices.SortStableFunc(boards, func(a, b backend.Leading) int { return byDeadline(&a.Board, &b.Board, r) })
	for _, b := range boards {
		if shown++; shown > maxCards {
			b.GPUs = nil
		}
		slices.SortStableFunc(b.GPUs, func(x, y backend.Leaders) int {
			return cmp.Or(cmp.Compare(placeOf(x.GPU), placeOf(y.GPU)), cmp.Compare(x.GPU, y.GPU))
		})
		switch {
		case r.now.Before(b.Deadline):
			page.Open = append(page.Open, b)
		case shown <= maxCards:
			page.Ended = append(page.Ended, b)
		default:
			page.Older = append(page.Older, b)
		}
	}
	line, err := s.Backend.Line(ctx, r.viewer)
	if err != nil {
		return err
	}
	for i := range line {
		page.Queue = append(page.Queue, newLine(&line[i]))
	}
	slices.SortStableFunc(page.Queue, func(a, b gpuLine) int { return cmp.Compare(placeOf(a.GPU), placeOf(b.GPU)) })
	return s.render(r, 200, frame{Page: "start", Title: "Boards", Here: "boards", Events: "/events/queue", Beats: true, Content: page})
}

// byDeadline puts boards that are open first, by deadline; of the others the last
// that ended comes first.
func byDeadline(a, b *store.Board, r *request) int {
	open, other := r.now.Before(a.Deadline), r.now.Before(b.Deadline)
	switch {
	case open && !other:
		return -1
	case other && !open:
		return 1
	case open:
		return cmp.Or(a.Deadline.Compare(b.Deadline), cmp.Compare(a.Name, b.Name))
	}
	return cmp.Or(b.Deadline.Compare(a.Deadline), cmp.Compare(a.Name, b.Name))
}

// rank writes a rank; one that is shared begins with "=".
func rank(e ranking.Entry) string {
	if e.Tied {
		return "=" + format.Number(e.Rank)
	}
	return format.Number(e.Rank)
}

// share is how fast a score is beside the first, in percent.
func share(score, first float64) float64 {
	if !(score > 0) || !(first > 0) || first > score {
		return 100
	}
	return max(100*first/score, 0.5)
}

func newLine(g *backend.GPUStatus) gpuLine {
	l := gpuLine{GPUStatus: g}
	switch {
	case g.Off != "":
		l.State = view.State{Text: "off", Tone: "warn"}
	case g.Known && g.Agents == 0:
		l.State = view.State{Text: "no machine", Tone: "bad"}
	case g.Running > 0:
		l.State = view.State{Text: "running", Tone: "busy"}
	case g.Waiting > 0:
		l.State = view.State{Text: "waiting", Tone: "busy"}
	default:
		l.State = view.State{Text: "free", Tone: "good"}
	}
	return l
}

// A listed submission is one line of a list.
type listed struct {
	*store.Listed
	ShowUser bool // the page is not about one user
	State    view.State
	Score    string
	Reason   string // why it does not rank, or failed
}

func newListed(all []store.Listed, showUser bool) []listed {
	out := make([]listed, len(all))
	for i := range all {
		l := &all[i]
		out[i] = listed{Listed: l, ShowUser: showUser, State: stateOf(l, false), Reason: reasonOf(l)}
		for _, v := range l.Verdicts {
			if v.Score != nil {
				out[i].Score = format.Microseconds(*v.Score)
			}
		}
	}
	return out
}

// stateOf says how far a submission is, or how it came out. waits: none of its runs has
// begun.
func stateOf(l *store.Listed, waits bool) view.State {
	switch {
	case l.Hacked:
		return view.State{Text: "does not count", Tone: "bad"}
	case !l.Done && (waits || l.Progress() != store.StatusRunning):
		return view.State{Text: "waiting", Tone: "busy"}
	case !l.Done:
		return view.State{Text: "running", Tone: "busy"}
	case slices.ContainsFunc(l.Verdicts, func(v ranking.Decision) bool { return v.Ranks }):
		return view.State{Text: "ranks", Tone: "good"}
	case l.Outcome == nil: // a row that says no more
		return view.State{Text: strings.ReplaceAll(cmp.Or(l.Job.Status, "finished"), "_", " "), Tone: "idle"}
	case l.Outcome.Name == schema.OutcomePassed && len(l.Verdicts) > 0:
		return view.State{Text: "does not rank", Tone: "warn"}
	case faults[l.Outcome.Fault] != "":
		return view.State{Text: faults[l.Outcome.Fault] + " fault", Tone: "warn"}
	}
	s := view.OutcomeState(schema.Outcome{Name: l.Outcome.Name, Fault: l.Outcome.Fault})
	s.Mark = ""
	return s
}

// faults name those who are to blame for a submission that was not judged.
var faults = map[string]string{schema.FaultMachine: "machine", schema.FaultRunner: "judge", schema.FaultTask: "task", schema.FaultLauncher: "setup"}

// reasonOf is why a submission does not rank, or how it failed, in one sentence.
func reasonOf(l *store.Listed) string {
	switch o := l.Outcome; {
	case l.Hacked || !l.Done || o == nil || o.Name == schema.OutcomePassed:
	case faults[o.Fault] != "" && !strings.Contains(o.Text, "fault"):
		return view.Sentence(o.Text) + " It was not the submission's fault."
	case o.Fault == schema.FaultOperator:
		return view.Sentence(cmp.Or(l.Job.Error, o.Text))
	default:
		return view.Sentence(o.Text)
	}
	for _, v := range l.Verdicts {
		if v.Reason != "" && l.Done {
			return view.Sentence(v.Reason)
		}
	}
	return view.Sentence(l.Job.Error)
}

type queuePage struct{ GPUs []gpuQueue }

// A gpuQueue is what one GPU type has to do.
type gpuQueue struct {
	gpuLine
	ID       string // of the heading
	Expected string // until a run that is handed in now begins
	Queued   []queued
	Hidden   int // runs that are not listed

	Day    *store.Day // nil: no run began in the last day
	Faults string     // "3 machine, 1 task"
	Chart  template.HTML
}

type queued struct {
	backend.QueuedRun
	Place    int
	Mine     bool
	Runs     int // of the submission, one behind the other
	Expected string
}

func (s *site) queue(r *request) error {
	line, err := s.Backend.Line(r.Context(), r.viewer)
	if err != nil {
		return err
	}
	days, err := s.Backend.LastDay(r.Context())
	if err != nil {
		return err
	}
	page := queuePage{}
	for i := range line {
		q := newQueue(&line[i], r, i)
		q.fillDay(days[q.GPU], r.now)
		page.GPUs = append(page.GPUs, q)
	}
	slices.SortStableFunc(page.GPUs, func(a, b gpuQueue) int { return cmp.Compare(placeOf(a.GPU), placeOf(b.GPU)) })
	return s.render(r, 200, frame{Page: "queue", Title: "Queue", Here: "queue", Events: "/events/queue", Beats: true, Refresh: 30, Content: page})
}

// fillDay shows how long runs waited in the last day, and what went wrong.
func (q *gpuQueue) fillDay(day *store.Day, now time.Time) {
	if day == nil {
		return
	}
	q.Day, q.Faults = day, tally(day.Faults)
	h := chart.History{ID: q.ID + "-wait", Title: "Median wait for " + name(q.GPU) + " in the last day", Unit: "s", Until: now}
	for _, hour := range day.Hours {
		h.Points = append(h.Points, chart.Point{Time: hour.Hour, Value: max(hour.Wait.Seconds(), 0.1), Label: format.Duration(hour.Wait) + ", " + hour.Hour.UTC().Format("15:04")})
	}
	if len(h.Points) > 2 {
		q.Chart = h.SVG()
	}
}

func newQueue(g *backend.GPUStatus, r *request, i int) gpuQueue {
	q := gpuQueue{gpuLine: newLine(g), ID: fmt.Sprintf("gpu-%d", i), Hidden: max(g.Running+g.Waiting-len(g.Runs), 0)}
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
			q.Queued[len(q.Queued)-1].Runs++
			continue
		}
		line := queued{QueuedRun: run, Place: waits, Runs: 1, Mine: r.viewer.ID != "" && run.UserID == r.viewer.ID}
		if !run.Running {
			line.Expected = about(expected(g, waits-1))
		}
		q.Queued = append(q.Queued, line)
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
