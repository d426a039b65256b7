package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"
)

// PriorityBulk and above is work that goes when nothing else waits for the GPU
// type, such as judging a whole board again. Below 0 is what goes before
// everything else, such as an admin's own.
const PriorityBulk = 100

// shareWindow is how far back runs count when users share a GPU type.
const shareWindow = time.Hour

// shareStep is how many runs make a difference: counting each would let those who
// come often overtake those who wait.
const shareStep = 4

// A share is one user's on one GPU type.
type share struct{ user, gpu string }

// inTurn puts runs that wait into the order in which they go. begun says how many
// runs each user began on each GPU type lately; it is used up.
//
// Urgent runs come first and bulk last. Between those, users take turns: next is
// whoever began the fewest runs on the GPU type within the last hour, counted in
// fours, whatever the length of their queue, so that a flood delays its own user
// alone. Of users with equally many, the smaller priority goes first, then who
// waits longer; and so among one user's own runs.
func inTurn(waiting []PlannedRun, begun map[share]int) []PlannedRun {
	type line struct {
		share
		runs []PlannedRun // of one user and band, the next first
	}
	lines := map[share][3]*line{}
	var all [3][]*line
	for _, run := range waiting {
		s, b := share{run.UserID, run.GPU}, band(run.Priority)
		of := lines[s]
		if of[b] == nil {
			of[b] = &line{share: s}
			lines[s] = of
			all[b] = append(all[b], of[b])
		}
		of[b].runs = append(of[b].runs, run)
	}
	order := make([]PlannedRun, 0, len(waiting))
	for _, lines := range all {
		for _, l := range lines {
			slices.SortFunc(l.runs, earlier)
		}
		h := lineHeap[*line]{less: func(a, b *line) bool {
			return cmp.Or(cmp.Compare(begun[a.share]/shareStep, begun[b.share]/shareStep), earlier(a.runs[0], b.runs[0])) < 0
		}}
		for _, l := range lines {
			h.push(l)
		}
		for len(h.items) > 0 {
			l := h.items[0]
			order = append(order, l.runs[0])
			l.runs = l.runs[1:]
			begun[l.share]++
			if len(l.runs) == 0 {
				h.pop()
			} else {
				h.down(0)
			}
		}
	}
	return order
}

// band is 0 for what goes first, 2 for bulk.
func band(priority int) int {
	switch {
	case priority < 0:
		return 0
	case priority < PriorityBulk:
		return 1
	}
	return 2
}

func earlier(a, b PlannedRun) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Created.Compare(b.Created), strings.Compare(a.RunID, b.RunID))
}

const plannedColumns = `p.run_id, p.submission_id, s.user_id, l.name, p.gpu, p.mode, p.secret, p.priority, p.state, p.build_number, p.build_id, p.fence, p.created_at, p.changed_at, p.started_at`

const plannedFrom = ` FROM own.planned_run p JOIN lb.submission s ON s.id = p.submission_id JOIN lb.leaderboard l ON l.id = s.leaderboard_id `

func (p *PlannedRun) scan(rows interface{ Scan(...any) error }) error {
	var created, changed, started stamp
	err := rows.Scan(&p.RunID, &p.Submission, &p.UserID, &p.Board, &p.GPU, &p.Mode, &p.Secret, &p.Priority, &p.State, &p.BuildNumber, &p.BuildID, &p.Fence, &created, &changed, &started)
	p.Created, p.Changed, p.Started = created.Time, changed.Time, started.Time
	return err
}

// Line lists everything that has not finished: what was begun, the oldest first,
// and then what waits, in the order in which it goes on its GPU type.
func (s *Store) Line(ctx context.Context) (line []PlannedRun, err error) {
	err = s.snapshot(ctx, "reading the line", func(tx *sql.Tx) error {
		var waiting []PlannedRun
		line = nil
		err := s.each(ctx, tx, func(rows *sql.Rows) error {
			var p PlannedRun
			err := p.scan(rows)
			if p.State == StatePlanned {
				waiting = append(waiting, p)
			} else {
				line = append(line, p)
			}
			return err
		}, `SELECT `+plannedColumns+plannedFrom+`WHERE p.state <> 'finished' ORDER BY p.started_at, p.run_id`)
		if err != nil {
			return err
		}
		begun, err := s.begun(ctx, tx, s.now())
		line = append(line, inTurn(waiting, begun)...)
		return err
	})
	return line, err
}

// begun counts the runs that each user began on each GPU type within the last hour.
func (s *Store) begun(ctx context.Context, on querier, now time.Time) (map[share]int, error) {
	begun := map[share]int{}
	return begun, s.each(ctx, on, func(rows *sql.Rows) error {
		var of share
		var n int
		err := rows.Scan(&of.user, &of.gpu, &n)
		begun[of] = n
		return err
	}, `SELECT s.user_id, p.gpu, count(*) FROM own.planned_run p JOIN lb.submission s ON s.id = p.submission_id WHERE p.started_at > $1 GROUP BY 1, 2`, stamp{now.Add(-shareWindow)})
}

// Typical returns how long runs on a GPU type in a mode took lately, from their
// beginning to their result, in the middle of the last 50; 0 when there were none.
func (s *Store) Typical(ctx context.Context, gpu, mode string) (time.Duration, error) {
	var took []time.Duration
	err := s.each(ctx, s.read, func(rows *sql.Rows) error {
		var began, ended stamp
		err := rows.Scan(&began, &ended)
		took = append(took, ended.Sub(began.Time))
		return err
	}, `SELECT started_at, finished_at FROM own.planned_run WHERE gpu = $1 AND mode = $2 AND finished_at IS NOT NULL AND started_at IS NOT NULL ORDER BY finished_at DESC LIMIT 50`, gpu, mode)
	if err != nil || len(took) == 0 {
		return 0, wrap("reading how long runs took", err)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// A lineHeap is a binary heap, the least first.
type lineHeap[T any] struct {
	items []T
	less  func(a, b T) bool
}

func (h *lineHeap[T]) push(v T) {
	h.items = append(h.items, v)
	for i := len(h.items) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.less(h.items[i], h.items[parent]) {
			return
		}
		h.items[i], h.items[parent] = h.items[parent], h.items[i]
		i = parent
	}
}

// pop removes the first.
func (h *lineHeap[T]) pop() {
	last := len(h.items) - 1
	h.items[0] = h.items[last]
	h.items = h.items[:last]
	h.down(0)
}

// down moves an item whose value grew to its place.
func (h *lineHeap[T]) down(i int) {
	for {
		least := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < len(h.items) && h.less(h.items[child], h.items[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.items[i], h.items[least] = h.items[least], h.items[i]
		i = least
	}
}
