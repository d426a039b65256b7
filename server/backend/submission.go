package backend

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/trace"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// A Submission is what one viewer may see of one.
//
// Its owner sees all of it but the scores and times of secret runs: a submission
// could write what it read of a secret case into how long it takes. An admin sees
// those too. Others see who handed in what and how it ranks, and nothing that it
// printed.
type Submission struct {
	*store.Polled
	Own      bool
	Wait     *Wait          // nil: nothing of it waits or runs
	ShowCode bool           // Code is what was handed in, and not left out
	CanRerun bool           // the viewer may run it again
	Reports  []store.Report // of public runs; its owner's and admins'
}

// Submission reads one. Its owner and admins see any; others those that rank, on
// boards that they may see.
//
// Errors: [store.ErrNotFound], also for what the viewer may not see.
func (b *Backend) Submission(ctx context.Context, v Viewer, id int64) (*Submission, error) {
	p, err := b.o.Store.Poll(ctx, id)
	if err != nil {
		return nil, err
	}
	s := &Submission{Polled: p, Own: v.owns(p.UserID)}
	if !s.Own && !v.Admin {
		return b.redactForOthers(ctx, v, s)
	}
	s.ShowCode = true
	if s.CanRerun, err = b.canRerun(ctx, v, p); err != nil {
		return nil, err
	}
	if s.Reports, err = b.o.Store.Reports(ctx, id); err != nil {
		return nil, err
	}
	if !v.Admin {
		blur(p)
		for i := range s.Reports { // the name of a vendor's machine is not for submitters
			r := &s.Reports[i]
			if r.Result.System.Hostname == "" {
				continue
			}
			r.Result.System.Hostname = ""
			if r.Raw, err = r.Result.Encode(); err != nil {
				return nil, fmt.Errorf("the report of run %s: %w", r.RunID, err)
			}
		}
	}
	if len(p.Open) > 0 && p.Open[0].State == store.StateHeld {
		s.Wait = &Wait{GPU: p.Open[0].GPU, Check: true}
	} else if len(p.Open) > 0 {
		wait, waits, err := b.o.Queue.Wait(ctx, id)
		if err != nil {
			return nil, err
		}
		if waits {
			s.Wait = &wait
		}
	}
	return s, nil
}

// redactForOthers removes the fields that only the owner may see.
func (b *Backend) redactForOthers(ctx context.Context, v Viewer, s *Submission) (*Submission, error) {
	ranks := slices.ContainsFunc(s.Verdicts, func(v ranking.Decision) bool { return v.Ranks })
	if !s.Done || s.Hacked || !ranks {
		return nil, missing(s.ID)
	}
	board, err := b.Board(ctx, v, s.Board)
	if errors.Is(err, store.ErrNotFound) {
		return nil, missing(s.ID)
	} else if err != nil {
		return nil, err
	}
	s.ShowCode = v.Known() && board.ShowCode == store.CodeAfter && time.Now().After(board.Deadline)
	if !s.ShowCode {
		s.Code = ""
	}
	s.Open, s.Job.Error = nil, ""
	s.Runs = slices.DeleteFunc(s.Runs, func(r store.PolledRun) bool { return r.Secret })
	for i := range s.Runs {
		s.Runs[i].Compilation, s.Runs[i].Meta, s.Runs[i].Result = nil, nil, nil
	}
	return s, nil
}

// blur hides how long secret runs took, and with what score. Who polls still sees
// about when they ended. The heartbeat is that of their end, too.
func blur(p *store.Polled) {
	for i := range p.Runs {
		if r := &p.Runs[i]; r.Secret {
			r.Score = nil
			r.End = r.End.Truncate(time.Minute)
			r.Start = r.End
			p.Job.Heartbeat = p.Job.Heartbeat.Truncate(time.Minute)
		}
	}
}

func missing(id int64) error { return fmt.Errorf("submission %d: %w", id, store.ErrNotFound) }

func (v Viewer) owns(user string) bool { return v.ID != "" && v.ID == user }

// own reads a submission that the viewer may act upon.
//
// Errors: [store.ErrNotFound]; [ErrForbidden] for one that the viewer may see.
func (b *Backend) own(ctx context.Context, v Viewer, id int64) (*store.Polled, error) {
	p, err := b.o.Store.Poll(ctx, id)
	if err != nil {
		return nil, err
	}
	if v.owns(p.UserID) || v.Admin {
		return p, nil
	}
	if _, err := b.redactForOthers(ctx, v, &Submission{Polled: p}); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("submission %d is somebody else's: %w", id, ErrForbidden)
}

// Cancel ends what has not finished of a submission.
//
// Errors: [store.ErrNotFound], [ErrForbidden]; [*store.Refusal] when it has
// finished.
func (b *Backend) Cancel(ctx context.Context, v Viewer, id int64) error {
	p, err := b.own(ctx, v, id)
	if err != nil {
		return err
	}
	why := "cancelled by its submitter"
	if !v.owns(p.UserID) {
		why = "cancelled by an admin"
	}
	return b.cancel(ctx, id, why)
}

func (b *Backend) cancel(ctx context.Context, id int64, why string) error {
	builds, err := b.o.Store.CancelSubmission(ctx, id, why)
	if err == nil && len(builds) > 0 {
		b.o.Queue.Drop(builds)
	}
	return err
}

// Delete removes a submission, cancelled first when it has not finished. What
// counts against a limit stays until it no longer does: otherwise deleting would
// give the allowance back.
//
// Errors: [store.ErrNotFound], [ErrForbidden], [*store.Refusal].
func (b *Backend) Delete(ctx context.Context, v Viewer, id int64) error {
	p, err := b.own(ctx, v, id)
	if err != nil {
		return err
	}
	if p.Hacked && !v.Admin {
		return fmt.Errorf("submission %d is marked as hacked: only an admin deletes it: %w", id, ErrForbidden)
	}
	if counts := time.Until(p.Time.Add(time.Hour)); !v.Admin && counts > 0 {
		limits, err := b.o.Store.Limits(ctx, p.Board)
		if err != nil {
			return err
		}
		if len(limits) > 0 {
			return &store.Refusal{Why: store.OverLimit, RetryAfter: counts.Round(time.Second),
				Text: fmt.Sprintf("submission %d counts against the limits of board %s; it can be deleted in %d s", id, p.Board, int(counts.Seconds())+1)}
		}
	}
	var refused *store.Refusal
	if err := b.cancel(ctx, id, "deleted"); err != nil && !errors.As(err, &refused) {
		return err
	}
	return b.o.Store.Delete(ctx, id)
}

// Log returns the log of one of a submission's runs, "" being its first public one
// that has a build. That of a secret run is for admins.
//
// Errors: [store.ErrNotFound], [ErrForbidden], a [*store.Refusal] when too many logs
// are asked for, and those of [Queue].
func (b *Backend) Log(ctx context.Context, v Viewer, id int64, runID string) (string, error) {
	if _, err := b.own(ctx, v, id); err != nil {
		return "", err
	}
	runs, err := b.o.Store.PlannedRuns(ctx, id)
	if err != nil {
		return "", err
	}
	for _, run := range runs {
		switch {
		case runID == "" && (run.Secret || run.BuildNumber == 0), runID != "" && run.RunID != runID:
			continue
		case run.Secret && !v.Admin:
			return "", fmt.Errorf("the log of a secret run: %w", ErrForbidden)
		case run.BuildNumber == 0:
			return "", fmt.Errorf("the log of a run that has no build yet: %w", store.ErrNotFound)
		}
		return b.logs.get(ctx, run, b.o.Queue.Log)
	}
	return "", fmt.Errorf("a run of submission %d: %w", id, store.ErrNotFound)
}

// ProfilerFiles returns the files that a profiler left in one run of a public evaluation,
// as a ZIP archive, and a name for it. runID selects an evaluation, and name one of its runs
// as in result.json ("profile.0"). If either is "", the first match is taken.
//
// Errors: [store.ErrNotFound], [ErrForbidden].
func (b *Backend) ProfilerFiles(ctx context.Context, v Viewer, id int64, runID, name string) (file string, archive []byte, err error) {
	if _, err := b.own(ctx, v, id); err != nil {
		return "", nil, err
	}
	reports, err := b.o.Store.Reports(ctx, id)
	if err != nil {
		return "", nil, err
	}
	for _, report := range reports {
		for _, run := range report.Result.Runs {
			if run.Profile == nil || runID != "" && report.RunID != runID || name != "" && run.Name != name {
				continue
			}
			archive, err := base64.StdEncoding.DecodeString(run.Profile.Trace)
			if err != nil {
				return "", nil, fmt.Errorf("the profiler's files of submission %d: not base64", id)
			}
			return fmt.Sprintf("submission-%d-%s.zip", id, run.Name), archive, nil
		}
	}
	return "", nil, fmt.Errorf("a profile of submission %d: %w", id, store.ErrNotFound)
}

// Mine lists the viewer's own submissions, newest first. An admin may ask for
// anybody's, and for all with no user.
//
// Errors: [ErrForbidden], [*store.Refusal].
func (b *Backend) Mine(ctx context.Context, v Viewer, q store.Query) ([]store.Listed, error) {
	switch {
	case !v.Known():
		return nil, fmt.Errorf("listing submissions without being logged in: %w", ErrForbidden)
	case !v.Admin:
		q.UserID = v.ID
	}
	return b.o.Store.Submissions(ctx, q)
}

// A Request is a file that somebody hands in. What Board and GPU leave out, the
// file's own directives say.
type Request struct {
	Board    string // in any case
	GPU      string // exactly as the board has it
	Mode     string // in any case
	FileName string
	Code     []byte
}

// Submit takes a submission: once it returns, the submission is kept and will be
// evaluated. An admin may submit after the deadline, to closed boards and beyond
// the limits.
//
// Errors: [ErrForbidden] for somebody who is not a user; [*store.Refusal].
func (b *Backend) Submit(ctx context.Context, v Viewer, r Request) (*store.Accepted, error) {
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
		return store.NewRefusal(store.Invalid, "file: %v", err)
	}
	named := strings.ToLower(d.Leaderboard)
	switch {
	case r.Board == "":
		r.Board = named
	case named != "" && named != r.Board:
		return store.NewRefusal(store.Invalid, "board: asked for is %s, and the file says %s", text.Quote(r.Board), text.Quote(named))
	}
	switch {
	case r.GPU != "":
	case len(d.GPUs) == 1:
		r.GPU = d.GPUs[0]
	default:
		return store.NewRefusal(store.Invalid, "GPU type: got %d, want exactly one", len(d.GPUs))
	}
	return nil
}

// accept stores a submission and says that there is work.
func (b *Backend) accept(ctx context.Context, in store.Submission) (*store.Accepted, error) {
	if err := b.serves(in.GPU); err != nil {
		return nil, err
	}
	if in.Time.IsZero() {
		in.Time = time.Now()
	}
	in.Check = b.o.Check
	in.Priority = pipelines.Precedence(in.Mode)
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
	return &accepted, nil
}

// urgent goes before what everybody else has handed in: an admin's own.
const urgent = -1

// open refuses while an admin has stopped submissions, but for admins.
func (b *Backend) open(ctx context.Context, v Viewer) error {
	on, err := b.o.Store.Accepting(ctx)
	if err != nil || on || v.Admin {
		return err
	}
	return store.NewRefusal(store.Invalid, "no submissions are taken at the moment")
}

// canRerun reports whether the owner or an admin may run a submission again now.
func (b *Backend) canRerun(ctx context.Context, v Viewer, p *store.Polled) (bool, error) {
	if !p.Done || v.Admin {
		return p.Done, nil
	}
	board, err := b.Board(ctx, v, p.Board)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && time.Now().Before(board.Deadline), err
}

// Rerun hands in the code of a submission once more, for its user: as a new
// submission, which the deadline and the limits hold for unless an admin asks.
//
// Errors: [store.ErrNotFound], [ErrForbidden], [*store.Refusal].
func (b *Backend) Rerun(ctx context.Context, v Viewer, id int64) (*store.Accepted, error) {
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
		return nil, store.NewRefusal(store.Invalid, "submission %d: it is not known what it was for", id)
	}
	return b.accept(ctx, store.Submission{Board: p.Board, GPU: gpu, Mode: mode, UserID: p.UserID, FileName: p.FileName,
		Code: []byte(p.Code), AnyTime: v.Admin, NoLimits: v.Admin, Fresh: true})
}
