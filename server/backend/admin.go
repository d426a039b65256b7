package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/queue"
)

// An Admin does what only admins may: all that the store does, and what needs more
// than the store.
type Admin struct {
	*store.Store
	b *Backend
	v Viewer
}

// Admin returns what an admin may do. Names of boards are in lower case for its
// store.
//
// Errors: [ErrForbidden] for others.
func (b *Backend) Admin(v Viewer) (*Admin, error) {
	if !v.Admin {
		return nil, fmt.Errorf("this is for admins: %w", ErrForbidden)
	}
	return &Admin{b.o.Store, b, v}, nil
}

// Verify plans one more evaluation of a submission that is done; gpu "" is the GPU
// type that it was for. What ranks changes with its results.
//
// Errors: [store.ErrNotFound]; [*store.Refusal] when it is not done.
func (a *Admin) Verify(ctx context.Context, id int64, gpu string) error {
	p, err := a.Poll(ctx, id)
	if err != nil {
		return err
	}
	if gpu != "" {
		if _, err := a.b.boardOn(ctx, a.v, p.Board, gpu); err != nil {
			return err
		}
	}
	if err := a.Plan(ctx, id, gpu, pipelines.Precedence(schema.ModeLeaderboard)); err != nil {
		return err
	}
	a.b.o.Queue.Wake()
	return nil
}

// Decide accepts or rejects a submission that waits for it, see [store.Store.Decide].
//
// Errors: [store.ErrNotFound]; [*store.Refusal] for one that does not wait.
func (a *Admin) Decide(ctx context.Context, id int64, accept bool, why string) error {
	err := a.Store.Decide(ctx, id, accept, why)
	if err == nil {
		a.b.o.Queue.Wake()
	}
	return err
}

// Rejudge plans evaluations as [store.Store.Rejudge] does. The history names the
// admin.
//
// Errors: [store.ErrNotFound], [*store.Refusal].
func (a *Admin) Rejudge(ctx context.Context, board string, which store.Rejudging) (store.Rejudged, error) {
	which.Priority, which.By.Name = queue.PriorityBulk, a.name()
	planned, err := a.Store.Rejudge(ctx, strings.ToLower(board), which)
	if planned.Runs > 0 && !which.DryRun {
		a.b.o.Queue.Wake()
	}
	return planned, err
}

// SaveBoards creates and changes boards, see [store.Store.SaveBoards]. The history
// names the admin.
//
// Errors: [*store.Refusal] for boards that are not valid.
func (a *Admin) SaveBoards(ctx context.Context, boards []store.Board, opts store.SaveOptions) ([]store.Change, error) {
	opts.By.Name = a.name()
	return a.Store.SaveBoards(ctx, boards, opts)
}

// Serves returns a [*store.Refusal] for a GPU type that evaluates no submissions.
func (a *Admin) Serves(gpus []string) error {
	for _, gpu := range gpus {
		if err := a.b.serves(gpu); err != nil {
			return err
		}
	}
	return nil
}

// name is the admin's, as the history of a board shows it.
func (a *Admin) name() string { return cmp.Or(a.v.Name, a.v.ID, "admin token") }

// MarkHacked takes a submission out of the ranking, and cancels what runs of it.
//
// Errors: [store.ErrNotFound].
func (a *Admin) MarkHacked(ctx context.Context, id int64, why string) error {
	var refused *store.Refusal
	if err := a.b.cancel(ctx, id, "marked as hacked"); err != nil && !errors.As(err, &refused) {
		return err
	}
	return a.Store.MarkHacked(ctx, id, why)
}

// NewInvites makes n codes, each of which lets one user into the boards.
//
// Errors: [store.ErrNotFound] for a board; [*store.Refusal].
func (a *Admin) NewInvites(ctx context.Context, boards []string, n int) ([]string, error) {
	if n < 1 || n > 1000 || len(boards) == 0 || len(boards) > 100 {
		return nil, store.NewRefusal(store.Invalid, "invites: got %d for %d boards, want 1 to 1000 for 1 to 100", n, len(boards))
	}
	names := make([]string, len(boards))
	for i, name := range boards {
		names[i] = strings.ToLower(name)
	}
	return a.Store.NewInvites(ctx, names, n)
}

// SetBoard changes a board's settings, see [store.Store.SetBoard]. The history names
// the admin.
//
// Errors: [store.ErrNotFound]; [*store.Refusal], also for a new GPU type that
// evaluates no submissions.
func (a *Admin) SetBoard(ctx context.Context, board string, edit func(*store.Board) error, opts store.SetOptions) (store.Change, error) {
	opts.By.Name = a.name()
	return a.Store.SetBoard(ctx, strings.ToLower(board), func(b *store.Board) error {
		had := b.GPUs
		if err := edit(b); err != nil {
			return err
		}
		for _, gpu := range b.GPUs {
			if err := a.b.serves(gpu); err != nil && !slices.Contains(had, gpu) {
				return err
			}
		}
		return nil
	}, opts)
}
