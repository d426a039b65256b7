package backend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/trace"
	"github.com/gpu-mode/kbgen/store"
)

// A Request is a file that somebody hands in. What Board and GPU leave out, the
// file's own directives say.
type Request struct {
	Board    string // in any case
	GPU      string // exactly as the board has it
	Mode     string // in any case
	FileName string
	Code     []byte
}

// A Receipt says under which ids a submission is kept.
type Receipt struct{ ID, JobStatusID int64 }

// Submit takes a submission: once it returns, the submission is kept and will be
// evaluated. An admin may submit after the deadline, to closed boards and beyond
// the limits.
//
// Errors: [ErrForbidden] for somebody who is not a user; [*store.Refusal].
func (b *Backend) Submit(ctx context.Context, v Viewer, r Request) (*Receipt, error) {
	if v.ID == "" {
		return nil, fmt.Errorf("submitting without being logged in: %w", ErrForbidden)
	}
	if err := b.open(ctx, v); err != nil {
		return nil, err
	}
	if err := r.direct(); err != nil {
		return nil, err
	}
	return b.accept(ctx, store.Submission{Board: r.Board, GPU: r.GPU, Mode: r.Mode, UserID: v.ID, UserName: v.Name,
		FileName: r.FileName, Code: r.Code, AnyTime: v.Admin, NoLimits: v.Admin, Fresh: v.Admin})
}

// direct applies what the file says of where it belongs. A board that differs is a
// mistake of somebody's; of GPU types, the one that was asked for wins, as in
// Kernelbot: a flag is how one tries the same file elsewhere.
func (r *Request) direct() error {
	r.Board, r.Mode = strings.ToLower(r.Board), strings.ToLower(r.Mode)
	if len(r.Code) > store.MaxCode {
		return nil // refused by what keeps it
	}
	d, err := schema.ParseDirectives(string(r.Code))
	if err != nil {
		return refuse(store.Invalid, "file: %v", err)
	}
	named := strings.ToLower(d.Leaderboard)
	switch {
	case r.Board == "":
		r.Board = named
	case named != "" && named != r.Board:
		return refuse(store.Invalid, "board: asked for is %s, and the file says %s", text.Quote(r.Board), text.Quote(named))
	}
	switch {
	case r.GPU != "":
	case len(d.GPUs) == 1:
		r.GPU = d.GPUs[0]
	default:
		return refuse(store.Invalid, "GPU type: got %d, want exactly one", len(d.GPUs))
	}
	return nil
}

// accept stores a submission and says that there is work.
func (b *Backend) accept(ctx context.Context, in store.Submission) (*Receipt, error) {
	if in.Time.IsZero() {
		in.Time = time.Now()
	}
	in.Priority = priority(in.Mode)
	if in.NoLimits {
		in.Priority = urgent
	}
	ctx, end := trace.Start(ctx, "accept")
	accepted, err := b.o.Store.Accept(ctx, in)
	if err != nil {
		end(err) // without what was asked for, which may be anything
		return nil, err
	}
	end(nil, trace.Submission(accepted.ID), trace.Board(in.Board), trace.GPU(in.GPU), trace.Mode(in.Mode))
	b.o.Queue.Wake()
	return &Receipt{ID: accepted.ID, JobStatusID: accepted.JobStatusID}, nil
}

// urgent goes before what everybody else has handed in: an admin's own.
const urgent = -1

// priority orders planned runs as Buildkite orders their jobs. There the higher
// number goes first, in the store the smaller one, and what goes first usually has 0.
func priority(mode string) int {
	first, _ := pipelines.Priority(schema.ModeTest)
	p, _ := pipelines.Priority(mode)
	return first - p
}

// open refuses while an admin has stopped submissions, but for admins.
func (b *Backend) open(ctx context.Context, v Viewer) error {
	on, err := b.o.Store.Accepting(ctx)
	if err != nil || on || v.Admin {
		return err
	}
	return refuse(store.Invalid, "no submissions are taken at the moment")
}

// Rerun hands in the code of a submission once more, for its user: as a new
// submission, which the deadline and the limits hold for unless an admin asks.
//
// Errors: [store.ErrNotFound], [ErrForbidden], [*store.Refusal].
func (b *Backend) Rerun(ctx context.Context, v Viewer, id int64) (*Receipt, error) {
	p, err := b.own(ctx, v, id)
	if err != nil {
		return nil, err
	}
	if err := b.open(ctx, v); err != nil {
		return nil, err
	}
	gpu, mode, err := b.o.Store.Target(ctx, id)
	if err != nil {
		return nil, err
	}
	if gpu == "" || !slices.Contains(schema.Modes(), mode) {
		return nil, refuse(store.Invalid, "submission %d: it is not known what it was for", id)
	}
	return b.accept(ctx, store.Submission{Board: p.Board, GPU: gpu, Mode: mode, UserID: p.UserID, FileName: p.FileName,
		Code: []byte(p.Code), AnyTime: v.Admin, NoLimits: v.Admin, Fresh: true})
}

func refuse(why store.Why, format string, args ...any) *store.Refusal {
	return &store.Refusal{Why: why, Text: fmt.Sprintf(format, args...)}
}
