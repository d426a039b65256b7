// Package queue orders the runs that wait for a machine. It is pure.
package queue

import (
	"cmp"
	"container/heap"
	"iter"
	"slices"
	"strings"
	"time"
)

// PriorityBulk and above is work that is done when nothing else waits for the GPU
// type, such as judging a whole board again. Work below 0 is done before
// everything else, such as an admin's own.
const PriorityBulk = 100

// ShareWindow is how long a run counts when users share a GPU type.
const ShareWindow = time.Hour

// shareStep is how many runs make a difference: counting each would let those who
// come often overtake those who wait.
const shareStep = 4

// A Share is one user's on one GPU type.
type Share struct{ User, GPU string }

// A Run is what the order of a run depends on.
type Run struct {
	Share
	ID       string
	Priority int
	Created  time.Time
}

// Order returns waiting in the order in which it is to start; describe says what
// each run is. begun says how many runs each user began on each GPU type within
// the [ShareWindow]; Order changes it.
//
// Urgent runs come first and bulk last. Between those, users take turns: the next
// user is the one who began the fewest runs on the GPU type, counted in fours,
// whatever the length of the user's queue, so that a flood delays its own user
// alone. Of users with equally many, the smaller priority goes first, then the run
// that waits longest; the same holds among one user's runs.
func Order[T any](waiting []T, describe func(T) Run, begun map[Share]int) []T {
	return slices.AppendSeq(make([]T, 0, len(waiting)), inTurn(waiting, describe, begun))
}

// Take returns at most n of the waiting runs: the first in their [Order] that have a
// free place on their GPU type. places holds the number of free places of each GPU
// type, and nil means that there is always one. Take changes places and begun.
func Take[T any](waiting []T, n int, places map[string]int, describe func(T) Run, begun map[Share]int) []T {
	var taken []T
	if n <= 0 {
		return nil
	}
	for v := range inTurn(waiting, describe, begun) {
		if places != nil {
			gpu := describe(v).GPU
			if places[gpu] <= 0 {
				continue
			}
			places[gpu]--
		}
		if taken = append(taken, v); len(taken) == n {
			break
		}
	}
	return taken
}

// Places returns how many builds of a GPU type may be under way if so many agents
// serve it. There are more places than agents, so that no agent waits for its next
// build while kbserve records a result. Builds beyond that wait in kbserve's queue,
// because Buildkite does not know whose turn it is.
func Places(agents int) int { return agents + max(2, agents/2) }

// inTurn yields the runs in their [Order].
func inTurn[T any](waiting []T, describe func(T) Run, begun map[Share]int) iter.Seq[T] {
	type place struct {
		Share
		band int
	}
	return func(yield func(T) bool) {
		users := map[place]*user[T]{}
		var bands [3]turns[T]
		for _, v := range waiting {
			run := describe(v)
			at := place{run.Share, band(run.Priority)}
			u := users[at]
			if u == nil {
				u = &user[T]{share: run.Share}
				users[at] = u
				bands[at.band].users = append(bands[at.band].users, u)
			}
			u.runs = append(u.runs, item[T]{run, v})
		}
		for i := range bands {
			b := &bands[i]
			b.begun = begun
			for _, u := range b.users {
				slices.SortFunc(u.runs, func(a, b item[T]) int { return compare(a.run, b.run) })
			}
			heap.Init(b)
			for b.Len() > 0 {
				u := b.users[0]
				if !yield(u.runs[0].value) {
					return
				}
				u.runs = u.runs[1:]
				begun[u.share]++
				if len(u.runs) == 0 {
					heap.Pop(b)
				} else {
					heap.Fix(b, 0)
				}
			}
		}
	}
}

// band is 0 for urgent work, 2 for bulk.
func band(priority int) int {
	switch {
	case priority < 0:
		return 0
	case priority < PriorityBulk:
		return 1
	}
	return 2
}

func compare(a, b Run) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
}

type item[T any] struct {
	run   Run
	value T
}

// A user's runs in one band, the next first.
type user[T any] struct {
	share Share
	runs  []item[T]
}

// turns is a heap of the users in one band, the next first.
type turns[T any] struct {
	users []*user[T]
	begun map[Share]int
}

func (h *turns[T]) Len() int { return len(h.users) }

func (h *turns[T]) Less(i, j int) bool {
	a, b := h.users[i], h.users[j]
	return cmp.Or(cmp.Compare(h.begun[a.share]/shareStep, h.begun[b.share]/shareStep), compare(a.runs[0].run, b.runs[0].run)) < 0
}

func (h *turns[T]) Swap(i, j int) { h.users[i], h.users[j] = h.users[j], h.users[i] }

func (h *turns[T]) Push(u any) { h.users = append(h.users, u.(*user[T])) }

func (h *turns[T]) Pop() any {
	last := h.users[len(h.users)-1]
	h.users = h.users[:len(h.users)-1]
	return last
}
