package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/queue"
)

// Everything here is for admins: others get [ErrForbidden].

func (v Viewer) admin(what string) error {
	if !v.Admin {
		return fmt.Errorf("%s: %w", what, ErrForbidden)
	}
	return nil
}

// Verify plans one more evaluation of a submission that is done; gpu "" is the GPU
// type that it was for. What ranks changes with its results.
//
// Errors: [store.ErrNotFound]; [*store.Refusal] when it is not done.
func (b *Backend) Verify(ctx context.Context, v Viewer, id int64, gpu string) error {
	if err := v.admin("verifying a submission"); err != nil {
		return err
	}
	p, err := b.o.Store.Poll(ctx, id)
	if err != nil {
		return err
	}
	if gpu != "" {
		if _, err := b.boardOn(ctx, v, p.Board, gpu); err != nil {
			return err
		}
	}
	if err := b.o.Store.Plan(ctx, id, gpu, priority(schema.ModeLeaderboard)); err != nil {
		return err
	}
	b.o.Queue.Wake()
	return nil
}

// Rejudge plans an evaluation for every submission that ranks on a board, as after
// a change of its task, and returns how many those are. One that is being
// evaluated anyway is left out.
//
// Errors: [store.ErrNotFound].
func (b *Backend) Rejudge(ctx context.Context, v Viewer, board string) (n int, err error) {
	if err := v.admin("rejudging a board"); err != nil {
		return 0, err
	}
	n, err = b.o.Store.PlanBoard(ctx, strings.ToLower(board), queue.PriorityBulk)
	if n > 0 {
		b.o.Queue.Wake()
	}
	return n, err
}

// MarkHacked takes a submission out of the ranking, and cancels what runs of it.
//
// Errors: [store.ErrNotFound].
func (b *Backend) MarkHacked(ctx context.Context, v Viewer, id int64, why string) error {
	if err := v.admin("marking a submission as hacked"); err != nil {
		return err
	}
	var refused *store.Refusal
	if err := b.cancel(ctx, id, "marked as hacked"); err != nil && !errors.As(err, &refused) {
		return err
	}
	return b.o.Store.MarkHacked(ctx, id, why)
}

// Ban stops a user from submitting, or lets them again. They may still look at what
// is theirs.
//
// Errors: [store.ErrNotFound].
func (b *Backend) Ban(ctx context.Context, v Viewer, user string, banned bool) error {
	if err := v.admin("banning a user"); err != nil {
		return err
	}
	return b.o.Store.Ban(ctx, user, banned)
}

// Accepting reports whether submissions are taken.
func (b *Backend) Accepting(ctx context.Context) (bool, error) { return b.o.Store.Accepting(ctx) }

// SetAccepting stops submissions on all instances, or starts them again.
func (b *Backend) SetAccepting(ctx context.Context, v Viewer, on bool) error {
	if err := v.admin("stopping or starting submissions"); err != nil {
		return err
	}
	return b.o.Store.SetAccepting(ctx, on)
}

// Stats counts what there is.
func (b *Backend) Stats(ctx context.Context, v Viewer) (s store.Stats, err error) {
	if err := v.admin("reading statistics"); err != nil {
		return s, err
	}
	return b.o.Store.Stats(ctx)
}

// Users lists who is known, by id.
func (b *Backend) Users(ctx context.Context, v Viewer) ([]store.User, error) {
	if err := v.admin("listing users"); err != nil {
		return nil, err
	}
	return b.o.Store.Users(ctx)
}

// NewInvites makes n codes, each of which lets one user into the boards.
//
// Errors: [store.ErrNotFound] for a board; [*store.Refusal].
func (b *Backend) NewInvites(ctx context.Context, v Viewer, boards []string, n int) ([]string, error) {
	if err := v.admin("making invites"); err != nil {
		return nil, err
	}
	if n < 1 || n > 1000 || len(boards) == 0 || len(boards) > 100 {
		return nil, refuse(store.Invalid, "invites: got %d for %d boards, want 1 to 1000 for 1 to 100", n, len(boards))
	}
	names := make([]string, len(boards))
	for i, name := range boards {
		names[i] = strings.ToLower(name)
	}
	return b.o.Store.NewInvites(ctx, names, n)
}

// Invites lists the invites to a board.
//
// Errors: [store.ErrNotFound].
func (b *Backend) Invites(ctx context.Context, v Viewer, board string) ([]store.Invite, error) {
	if err := v.admin("listing invites"); err != nil {
		return nil, err
	}
	return b.o.Store.Invites(ctx, strings.ToLower(board))
}

// RevokeInvite takes a code back, and with it the access of who claimed it.
//
// Errors: [store.ErrNotFound].
func (b *Backend) RevokeInvite(ctx context.Context, v Viewer, code string) error {
	if err := v.admin("revoking an invite"); err != nil {
		return err
	}
	return b.o.Store.RevokeInvite(ctx, code)
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

// SetLimits sets all of a board's limits at once.
//
// Errors: [store.ErrNotFound], [*store.Refusal].
func (b *Backend) SetLimits(ctx context.Context, v Viewer, board string, limits []store.Limit) error {
	if err := v.admin("setting limits"); err != nil {
		return err
	}
	return b.o.Store.SetLimits(ctx, strings.ToLower(board), limits)
}

// CloseBoard ends a board now.
//
// Errors: [store.ErrNotFound].
func (b *Backend) CloseBoard(ctx context.Context, v Viewer, board string) error {
	if err := v.admin("closing a board"); err != nil {
		return err
	}
	return b.o.Store.CloseBoard(ctx, strings.ToLower(board), time.Now())
}

// DeleteBoard removes a board, with force also one that has submissions.
//
// Errors: [store.ErrNotFound].
func (b *Backend) DeleteBoard(ctx context.Context, v Viewer, board string, force bool) (submissions int, err error) {
	if err := v.admin("deleting a board"); err != nil {
		return 0, err
	}
	return b.o.Store.DeleteBoard(ctx, strings.ToLower(board), force)
}

// SetVisibility makes a board public or closed.
//
// Errors: [store.ErrNotFound], [*store.Refusal].
func (b *Backend) SetVisibility(ctx context.Context, v Viewer, board, visibility string) error {
	if err := v.admin("setting a board's visibility"); err != nil {
		return err
	}
	if visibility != store.Public && visibility != store.Closed {
		return refuse(store.Invalid, "visibility: want %s or %s", store.Public, store.Closed)
	}
	found, err := b.Board(ctx, v, board)
	if err != nil {
		return err
	}
	found.Visibility = visibility
	_, err = b.o.Store.SaveBoards(ctx, []store.Board{*found}, store.SaveOptions{})
	return err
}
