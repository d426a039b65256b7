package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
)

type runCmd struct {
	stateFlags `embed:""`
	File       string        `arg:""`
	Env        []string      `sep:"none" placeholder:"NAME=VALUE" help:"a variable of the build; may be repeated"`
	EnvFile    []string      `sep:"none" placeholder:"FILE" help:"lines NAME=VALUE, or NAME to pass on; --env beats them"`
	Here       bool          `help:"run jobs in this directory instead of a checkout"`
	Step       []string      `sep:"none" placeholder:"KEY" help:"run only this step, the others are skipped; may be repeated"`
	List       bool          `help:"list the steps and run nothing"`
	DryRun     bool          `help:"print the pipeline as it would be uploaded and run nothing"`
	Watch      bool          `help:"run again whenever FILE changes, until interrupted"`
	Host       []string      `placeholder:"docker" help:"run steps of the docker plugin ON THIS MACHINE, without it"`
	Unblock    []string      `sep:"none" placeholder:"KEY" help:"answer the block or input step KEY ; '*' answers all"`
	Field      []string      `sep:"none" placeholder:"KEY=VALUE" help:"the answer to a field of such a step; may be repeated"`
	Agents     int           `default:"2" placeholder:"N" help:"agents per queue"`
	Branch     string        `placeholder:"NAME" help:"branch of the build; default the current one, else main"`
	Message    string        `placeholder:"TEXT" help:"message of the build"`
	Timeout    time.Duration `placeholder:"D" help:"cancel the build after D, as 90s or 10m; default never"`
	JSON       bool          `name:"json" help:"print the build as the REST API shows it; logs go to stderr"`
	Quiet      bool          `help:"no job logs"`
}

// uploader is the first step of every run. The agent reads the file as it
// would in a bootstrap step.
const uploader = `steps:
  - key: kblocal-upload
    label: upload
    command: buildkite-agent pipeline upload "$$KBLOCAL_PIPELINE"
`

// maxPipeline bounds what is read as a pipeline, bytes.
const maxPipeline = 64 << 20

func (c *runCmd) Run(ctx context.Context, env *cli.Env) (err error) {
	if c.Agents < 1 || c.Agents > 64 {
		return cli.Usagef("--agents %d: want 1 to 64", c.Agents)
	}
	for _, plugin := range c.Host {
		if plugin != "docker" {
			return cli.Usagef("--host %q: want docker, the one plugin whose steps can run without it", plugin)
		}
	}
	if c.Watch && c.File == "-" {
		return cli.Usagef("--watch: want a file, standard input does not change")
	}
	vars, err := c.variables(env)
	if err != nil {
		return err
	}
	text, err := c.read(env.Stdin)
	if err != nil {
		return err
	}
	if c.List || c.DryRun {
		return c.preview(ctx, env, text, vars)
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("not done after %s", c.Timeout))
		defer cancel()
	}
	s, err := c.open(env, local.Options{
		Log: func(format string, args ...any) { fmt.Fprintf(env.Stderr, "kblocal: "+format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if c.Watch {
		return c.rerun(ctx, env, s, text)
	}
	return c.once(ctx, env, s, text, vars)
}

// once runs the pipeline and says with its error how that ended.
func (c *runCmd) once(ctx context.Context, env *cli.Env, s *session, text []byte, vars map[string]string) error {
	vars["KBLOCAL_PIPELINE"] = filepath.Join(s.dir, "pipeline.yml")
	if err := os.WriteFile(vars["KBLOCAL_PIPELINE"], text, 0o600); err != nil {
		return err
	}
	b, err := c.build(ctx, env, s, vars)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := s.printBuild(ctx, b, env.Stdout); err != nil {
			return err
		}
	}
	if b.State != engine.BuildPassed || b.Blocked {
		return &cli.ExitError{Status: cli.ExitFailed}
	}
	return nil
}

// read returns the pipeline's text.
func (c *runCmd) read(stdin io.Reader) ([]byte, error) {
	in := stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
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
func (c *runCmd) build(ctx context.Context, env *cli.Env, s *session, vars map[string]string) (engine.Build, error) {
	p, in, err := c.describe(ctx, env, vars)
	if err != nil {
		return engine.Build{}, err
	}
	if _, err := s.Engine.Pipeline(p.Slug); err != nil { // the first run
		if _, err := s.Engine.CreatePipeline(p); err != nil {
			return engine.Build{}, err
		}
	}
	out := env.Stdout
	if c.JSON {
		out = env.Stderr
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watchers sync.WaitGroup
	f := newFollower(s.Engine, out, showing(env, follow{logs: !c.Quiet, one: true}))
	watchers.Go(func() { f.run(watching) })
	missing := make(chan error, 1)
	watchers.Go(func() { missing <- s.startMissing(watching, c.Agents) })
	defer watchers.Wait()
	defer stop()

	b, err := s.Engine.CreateBuild(p.Slug, in)
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
	done, err := s.Engine.Wait(waiting, b.ID)
	for err == nil && done.Blocked {
		if err := c.unblock(env, s, done); err != nil {
			return c.giveUp(s, b, err)
		}
		done, err = s.Engine.Wait(waiting, b.ID)
	}
	if err != nil {
		return c.giveUp(s, b, context.Cause(waiting))
	}
	f.drain(b.ID)
	return done, nil
}

// giveUp cancels a build that is not waited for any more.
func (c *runCmd) giveUp(s *session, b engine.Build, cause error) (engine.Build, error) {
	_, err := s.Engine.CancelBuild(b.Pipeline, b.Number)
	return b, errors.Join(fmt.Errorf("build canceled: %w", cause), err)
}

// describe makes the pipeline and the build of this directory.
func (c *runCmd) describe(ctx context.Context, env *cli.Env, vars map[string]string) (engine.Pipeline, engine.NewBuild, error) {
	repo := findRepository(ctx)
	p := engine.Pipeline{Slug: "local", Configuration: uploader, Repository: repo.dir, DefaultBranch: repo.branch}
	in := engine.NewBuild{
		Commit: repo.commit, Branch: c.Branch, Message: c.Message, Source: "ui", Env: vars,
		Select: c.Step, OnHost: len(c.Host) > 0,
	}
	if in.Branch == "" {
		in.Branch = repo.branch
	}
	if in.Message == "" {
		in.Message = "kblocal run " + c.File
	}
	switch {
	case c.Here:
		dir, err := os.Getwd()
		if err != nil {
			return p, in, err
		}
		p.SkipCheckout, p.CheckoutPath = true, dir
	case repo.dir == "":
		fmt.Fprintln(env.Stderr, "kblocal: note: no git repository here, jobs start in an empty directory; --here runs them in this one")
		p.SkipCheckout = true
	case repo.dirty:
		fmt.Fprintln(env.Stderr, "kblocal: note: uncommitted changes are not in the jobs' checkout; --here runs them in this directory")
	}
	return p, in, nil
}
