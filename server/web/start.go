package web

import (
	"cmp"
	"slices"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
	"github.com/gpu-mode/kbgen/verdict/view"
)

const (
	maxCards    = 24 // boards that are shown with their leaders; the others are lines of a table
	leaderCount = 3
)

type startPage struct {
	Open, Closed []boardCard // with leaders
	Older        []boardCard // closed, without
	Queue        []gpuLine
	Known        bool
}

// A boardCard is one board on the start page.
type boardCard struct {
	Name, Path, Summary string
	Deadline            string // in words
	Closes              view.Moment
	Submissions         int
	Invited             bool // only with an invite
	GPUs                []gpuLeaders
}

type gpuLeaders struct {
	GPU, Path string
	Leaders   []leader
}

type leader struct {
	Rank           string
	User, UserPath string
	Score, Path    string
	Share          float64 // of the first's speed, in percent of the bar's width
}

// A gpuLine is the queue of one GPU type in one line.
type gpuLine struct {
	GPU              string
	State            view.State
	Running, Waiting int
	Note             string
}

func (s *site) start(r *request) error {
	ctx := r.Context()
	boards, err := s.Backend.Leading(ctx, r.viewer, leaderCount)
	if err != nil {
		return err
	}
	page := startPage{Known: r.viewer.Known()}
	shown := 0
	slices.SortStableFunc(boards, func(a, b backend.Leading) int { return byDeadline(&a.Board, &b.Board, r) })
	for _, b := range boards {
		card := newCard(&b.Board, r)
		if shown++; shown <= maxCards {
			card.GPUs = newLeaders(&b)
		}
		switch {
		case r.now.Before(b.Deadline):
			page.Open = append(page.Open, card)
		case shown <= maxCards:
			page.Closed = append(page.Closed, card)
		default:
			page.Older = append(page.Older, card)
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
	return s.render(r, 200, frame{Page: "start", Title: "Boards", Here: "boards", Events: "/events/queue", Content: page})
}

// byDeadline puts boards that are open first, by deadline; of the others the last
// that closed comes first.
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

func newCard(b *store.Board, r *request) boardCard {
	return boardCard{
		Name: name(b.Name), Path: boardPath(b.Name, ""), Summary: summary(b.Description, 180),
		Deadline: deadline(b.Deadline, r.now), Closes: newMoment(b.Deadline, r.now),
		Submissions: b.Submissions, Invited: b.Visibility == store.Closed,
	}
}

func newLeaders(b *backend.Leading) []gpuLeaders {
	slices.SortStableFunc(b.GPUs, func(x, y backend.Leaders) int {
		return cmp.Or(cmp.Compare(placeOf(x.GPU), placeOf(y.GPU)), cmp.Compare(x.GPU, y.GPU))
	})
	var out []gpuLeaders
	for _, g := range b.GPUs {
		l := gpuLeaders{GPU: name(g.GPU), Path: boardPath(b.Name, g.GPU)}
		for i := range g.Entries {
			l.Leaders = append(l.Leaders, newLeader(&g.Entries[i], g.Entries[0].Score))
		}
		out = append(out, l)
	}
	return out
}

func newLeader(e *ranking.Entry, first float64) leader {
	return leader{
		Rank: rank(e), User: name(e.User), UserPath: userPath(e.UserID),
		Score: format.Microseconds(e.Score), Path: submissionPath(e.SubmissionID), Share: share(e.Score, first),
	}
}

// rank writes a rank; one that is shared begins with "=".
func rank(e *ranking.Entry) string {
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
	l := gpuLine{GPU: name(g.GPU), Running: g.Running, Waiting: g.Waiting}
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
