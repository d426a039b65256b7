package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// A Profile is what everybody may know of a user.
type Profile struct {
	ID, Name string
	Ranks    []Rank // on boards that the viewer may see, by board and GPU type
}

// A Rank is where a user stands on one GPU type of a board.
type Rank struct {
	ranking.Entry
	Board, GPU string
	Of         int // users who rank there
}

// Profile reads one. Somebody who ranks nowhere is known to themselves and to
// admins only.
//
// Errors: [store.ErrNotFound].
func (b *Backend) Profile(ctx context.Context, v Viewer, id string) (*Profile, error) {
	user, err := b.o.Store.User(ctx, id)
	if err != nil {
		return nil, err
	}
	boards, err := b.Boards(ctx, v)
	if err != nil {
		return nil, err
	}
	p := &Profile{ID: user.ID, Name: user.Name}
	for _, board := range boards {
		for _, gpu := range board.GPUs {
			entries, total, err := b.o.Store.Page(ctx, board.Name, gpu, 0, 0)
			if errors.Is(err, store.ErrNotFound) {
				continue // deleted meanwhile
			} else if err != nil {
				return nil, err
			}
			if at := slices.IndexFunc(entries, func(e ranking.Entry) bool { return e.UserID == id }); at >= 0 {
				p.Ranks = append(p.Ranks, Rank{entries[at], board.Name, gpu, total})
			}
		}
	}
	if len(p.Ranks) == 0 && v.ID != id && !v.Admin {
		return nil, fmt.Errorf("user: %w", store.ErrNotFound)
	}
	return p, nil
}

// A Leading board is one with who leads on it.
type Leading struct {
	store.Board
	GPUs []Leaders // as the board has them
}

// Leaders are the first of a ranking.
type Leaders struct {
	GPU     string
	Entries []ranking.Entry
	Of      int // users who rank there
}

// Leading lists the boards that the viewer may see, by name, with the first n of
// each ranking.
func (b *Backend) Leading(ctx context.Context, v Viewer, n int) ([]Leading, error) {
	boards, err := b.Boards(ctx, v)
	if err != nil {
		return nil, err
	}
	out := make([]Leading, 0, len(boards))
	for _, board := range boards {
		l := Leading{Board: board}
		for _, gpu := range board.GPUs {
			entries, total, err := b.o.Store.Page(ctx, board.Name, gpu, n, 0)
			if err != nil && !errors.Is(err, store.ErrNotFound) { // deleted meanwhile
				return nil, err
			}
			l.GPUs = append(l.GPUs, Leaders{gpu, entries, total})
		}
		out = append(out, l)
	}
	return out, nil
}

// UserName is the name of a user, "" when there is none.
func (b *Backend) UserName(ctx context.Context, id string) (string, error) {
	user, err := b.o.Store.User(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return user.Name, err
}

// Stuck lists for admins what has not finished and is older than age.
func (b *Backend) Stuck(ctx context.Context, v Viewer, age time.Duration) ([]store.Stuck, error) {
	if err := v.admin("listing stuck runs"); err != nil {
		return nil, err
	}
	return b.o.Store.Stuck(ctx, age)
}
