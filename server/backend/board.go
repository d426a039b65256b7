package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// sees reports whether a viewer may see a board.
func (b *Backend) sees(ctx context.Context, v Viewer, board *store.Board) (bool, error) {
	if v.Admin || board.Visibility == store.Public {
		return true, nil
	}
	if v.ID == "" {
		return false, nil
	}
	return b.o.Store.Allowed(ctx, board.Name, v.ID)
}

// Boards lists the boards that the viewer may see, by name.
func (b *Backend) Boards(ctx context.Context, v Viewer) ([]store.Board, error) {
	all, err := b.o.Store.Boards(ctx)
	if err != nil {
		return nil, err
	}
	seen := make([]store.Board, 0, len(all))
	for i := range all {
		yes, err := b.sees(ctx, v, &all[i])
		if err != nil {
			return nil, err
		}
		if yes {
			seen = append(seen, all[i])
		}
	}
	return seen, nil
}

// Board reads one, whose name may be in any case.
//
// Errors: [store.ErrNotFound], also for a board that the viewer may not see.
func (b *Backend) Board(ctx context.Context, v Viewer, name string) (*store.Board, error) {
	none := fmt.Errorf("board %s: %w", text.Quote(name), store.ErrNotFound)
	board, err := b.o.Store.Board(ctx, strings.ToLower(name))
	if errors.Is(err, store.ErrNotFound) {
		return nil, none
	} else if err != nil {
		return nil, err
	}
	switch yes, err := b.sees(ctx, v, board); {
	case err != nil:
		return nil, err
	case !yes:
		return nil, none
	}
	return board, nil
}

// boardOn is Board, and refuses a GPU type that is not one of the board's.
func (b *Backend) boardOn(ctx context.Context, v Viewer, name, gpu string) (*store.Board, error) {
	board, err := b.Board(ctx, v, name)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(board.GPUs, gpu) {
		return nil, store.NewRefusal(store.UnknownGPU, "GPU %s: board %s has %s", text.Quote(text.Shorten(gpu, 100)), board.Name, strings.Join(board.GPUs, ", "))
	}
	return board, nil
}

// Ranking returns a board's ranking on a GPU type from offset on, at most limit
// entries (0: all), and how many there are in all.
//
// Errors: [store.ErrNotFound], [*store.Refusal].
func (b *Backend) Ranking(ctx context.Context, v Viewer, board, gpu string, limit, offset int) ([]ranking.Entry, int, error) {
	found, err := b.boardOn(ctx, v, board, gpu)
	if err != nil {
		return nil, 0, err
	}
	return b.o.Store.Page(ctx, found.Name, gpu, limit, offset)
}

// Count returns how many users rank on a GPU type.
//
// Errors: [store.ErrNotFound], [*store.Refusal].
func (b *Backend) Count(ctx context.Context, v Viewer, board, gpu string) (int, error) {
	found, err := b.boardOn(ctx, v, board, gpu)
	if err != nil {
		return 0, err
	}
	return b.o.Store.Count(ctx, found.Name, gpu)
}

// History returns how the best score of a board fell over time, oldest first; with
// user, that user's. What ranks is public, so anybody who sees the board may ask.
//
// Errors: [store.ErrNotFound], [*store.Refusal].
func (b *Backend) History(ctx context.Context, v Viewer, board, gpu, user string) ([]store.Step, error) {
	found, err := b.boardOn(ctx, v, board, gpu)
	if err != nil {
		return nil, err
	}
	return b.o.Store.History(ctx, found.Name, gpu, user)
}

// BoardChanges lists how a board's settings were changed, the latest first.
//
// Errors: [store.ErrNotFound].
func (b *Backend) BoardChanges(ctx context.Context, v Viewer, board string) ([]store.BoardChange, error) {
	found, err := b.Board(ctx, v, board)
	if err != nil {
		return nil, err
	}
	return b.o.Store.BoardChanges(ctx, found.Name)
}

// Line lists what runs and what waits. Runs of boards that the viewer may not see
// are counted and not listed.
func (b *Backend) Line(ctx context.Context, v Viewer) ([]GPUStatus, error) {
	line, err := b.o.Queue.Status(ctx)
	if err != nil {
		return nil, err
	}
	boards, err := b.Boards(ctx, v)
	if err != nil {
		return nil, err
	}
	line = slices.Clone(line)
	for i := range line {
		line[i].Runs = slices.DeleteFunc(slices.Clone(line[i].Runs), func(r QueuedRun) bool {
			return !slices.ContainsFunc(boards, func(b store.Board) bool { return b.Name == r.Board })
		})
	}
	return line, nil
}

// Join lets the viewer into the boards that an invite is for, and returns them.
//
// Errors: [ErrForbidden] for somebody who is not a user; [*store.Refusal].
func (b *Backend) Join(ctx context.Context, v Viewer, code string) ([]string, error) {
	if v.ID == "" {
		return nil, fmt.Errorf("joining without being logged in: %w", ErrForbidden)
	}
	return b.o.Store.ClaimInvite(ctx, code, v.ID)
}

// NewCLIID gives the viewer a CLI id, in place of any that was there.
//
// Errors: [ErrForbidden] for somebody who is not a user.
func (b *Backend) NewCLIID(ctx context.Context, v Viewer) (string, error) {
	if v.ID == "" {
		return "", fmt.Errorf("a CLI id without being logged in: %w", ErrForbidden)
	}
	return b.o.Store.NewCLIID(ctx, v.ID, v.Name)
}

// EndSessions logs the viewer out in every browser.
//
// Errors: [ErrForbidden] for somebody who is not a user.
func (b *Backend) EndSessions(ctx context.Context, v Viewer) error {
	if v.ID == "" {
		return fmt.Errorf("ending sessions without being logged in: %w", ErrForbidden)
	}
	return b.o.Store.EndSessions(ctx, v.ID)
}

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

// Limits lists a board's limits. They are no secret.
//
// Errors: [store.ErrNotFound].
func (b *Backend) Limits(ctx context.Context, v Viewer, board string) ([]store.Limit, error) {
	found, err := b.Board(ctx, v, board)
	if err != nil {
		return nil, err
	}
	return b.o.Store.Limits(ctx, found.Name)
}

// dayAge is how old the numbers of the last day may be.
const dayAge = time.Minute

// LastDay sums up the last 24 hours by GPU type, for everybody. It may be a minute old.
func (b *Backend) LastDay(ctx context.Context) (map[string]*store.Day, error) {
	b.day.Lock()
	defer b.day.Unlock()
	if b.day.days == nil || time.Since(b.day.read) > dayAge {
		days, err := b.o.Store.LastDay(ctx)
		if err != nil {
			return nil, err
		}
		b.day.days, b.day.read = days, time.Now()
	}
	return b.day.days, nil
}
