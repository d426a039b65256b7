package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gpu-mode/kbgen/local/engine"
)

// A Run runs the pipeline of a file in a session.
type Run struct {
	*Session
	File            string
	Here            bool     // jobs run in the working directory
	Step            []string // run only these; nil: all
	OnHost          bool     // steps of the docker plugin run without it
	Agents          int      // per queue
	Branch, Message string   // "": the repository's, and one that names the file
	Shown           Shown

	Stdout, Stderr io.Writer

	// Vars reads the build's variables; Unblock answers the step that a build
	// waits for; Print, when not nil, prints the build as the REST API shows it,
	// and what happens goes to Stderr.
	Vars    func() (map[string]string, error)
	Unblock func(engine.Build) error
	Print   func(build any) error
}

// ErrNotPassed is a build that ended otherwise, or waits.
var ErrNotPassed = errors.New("the build has not passed")

// uploader is the first step of every run. The agent reads the file as it
// would in a bootstrap step.
const uploader = `steps:
  - key: kblocal-upload
    label: upload
    command: buildkite-agent pipeline upload "$$KBLOCAL_PIPELINE"
`

// maxPipeline bounds what is read as a pipeline, bytes.
const maxPipeline = 64 << 20

// Once runs the pipeline and says with its error how that ended.
//
// Error: [ErrNotPassed] among them.
func (r *Run) Once(ctx context.Context, text []byte, vars map[string]string) error {
	vars["KBLOCAL_PIPELINE"] = filepath.Join(r.Dir, "pipeline.yml")
	if err := os.WriteFile(vars["KBLOCAL_PIPELINE"], text, 0o600); err != nil {
		return err
	}
	b, err := r.build(ctx, vars)
	if err != nil {
		return err
	}
	if r.Print != nil {
		document, err := r.document(ctx, b)
		if err == nil {
			err = r.Print(document)
		}
		if err != nil {
			return err
		}
	}
	if b.State != engine.BuildPassed || b.Blocked {
		return ErrNotPassed
	}
	return nil
}

// Read returns the text of the pipeline in file, "-" being stdin.
func Read(file string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxPipeline+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the pipeline: %w", err)
	case len(text) > maxPipeline:
		return nil, fmt.Errorf("the pipeline has more than %d bytes", maxPipeline)
	case strings.TrimSpace(string(text)) == "":
		return nil, errors.New("the pipeline is empty: whatever should have written it failed")
	}
	return text, nil
}

// build runs the build to its end and shows what happens.
func (r *Run) build(ctx context.Context, vars map[string]string) (engine.Build, error) {
	p, in, err := r.describe(ctx, vars)
	if err != nil {
		return engine.Build{}, err
	}
	if _, err := r.Engine.Pipeline(p.Slug); err != nil { // the first run
		if _, err := r.Engine.CreatePipeline(p); err != nil {
			return engine.Build{}, err
		}
	}
	out := r.Stdout
	if r.Print != nil {
		out = r.Stderr
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watchers sync.WaitGroup
	f := NewFollower(r.Engine, out, r.Shown)
	watchers.Go(func() { f.Run(watching) })
	missing := make(chan error, 1)
	watchers.Go(func() { missing <- r.startMissing(watching, r.Agents) })
	defer watchers.Wait()
	defer stop()

	b, err := r.Engine.CreateBuild(p.Slug, in)
	if err != nil {
		return engine.Build{}, err
	}
	waiting, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	watchers.Go(func() {
		if err := <-missing; err != nil {
			abort(err)
		}
	})
	done, err := r.Engine.Wait(waiting, b.ID)
	for err == nil && done.Blocked {
		if err := r.Unblock(done); err != nil {
			return r.giveUp(b, err)
		}
		done, err = r.Engine.Wait(waiting, b.ID)
	}
	if err != nil {
		return r.giveUp(b, context.Cause(waiting))
	}
	f.Drain(b.ID)
	return done, nil
}

// giveUp cancels a build that is not waited for any more.
func (r *Run) giveUp(b engine.Build, cause error) (engine.Build, error) {
	_, err := r.Engine.CancelBuild(b.ID)
	return b, errors.Join(fmt.Errorf("build canceled: %w", cause), err)
}

// describe makes the pipeline and the build of this directory.
func (r *Run) describe(ctx context.Context, vars map[string]string) (engine.Pipeline, engine.NewBuild, error) {
	repo := FindRepository(ctx)
	p := engine.Pipeline{Slug: "local", Configuration: uploader, Repository: repo.Dir, DefaultBranch: repo.Branch}
	in := engine.NewBuild{
		Commit: repo.Commit, Branch: cmp.Or(r.Branch, repo.Branch), Message: cmp.Or(r.Message, "kblocal run "+r.File), Source: "ui", Env: vars,
		Select: r.Step, OnHost: r.OnHost,
	}
	switch {
	case r.Here:
		dir, err := os.Getwd()
		if err != nil {
			return p, in, err
		}
		p.SkipCheckout, p.CheckoutPath = true, dir
	case repo.Dir == "":
		fmt.Fprintln(r.Stderr, "kblocal: note: no git repository here, jobs start in an empty directory; --here runs them in this one")
		p.SkipCheckout = true
	case repo.Dirty:
		fmt.Fprintln(r.Stderr, "kblocal: note: uncommitted changes are not in the jobs' checkout; --here runs them in this directory")
	}
	return p, in, nil
}
