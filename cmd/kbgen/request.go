package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/pipelines"
)

// pipelineFlags are what all commands about a pipeline share: its name, and
// what the build is for. A flag beats its variable.
type pipelineFlags struct {
	Pipeline string `arg:"" optional:""`
	requestFlags
}

// requestFlags say what the build is for, see [pipelines.NewRequest].
type requestFlags struct {
	GPU           []string `name:"gpu" placeholder:"NAME" help:"a GPU type; may be repeated, or NAME,NAME; ALL for each; default KERNELBOT_GPU, else the type whose queue is KERNELBOT_QUEUE or GPU_QUEUE; all that are set must agree"`
	IncludeOff    bool     `name:"include-off" help:"also render GPU types that are switched off"`
	Image         *string  `placeholder:"REF" help:"use this pinned image instead of the row's; default KERNELBOT_IMAGE"`
	ImagePolicy   string   `name:"image-policy" enum:"row,refuse" default:"row" placeholder:"POLICY" help:"if a build names an image that it may not: row uses the row's image, refuse fails"`
	PayloadChunks *int     `placeholder:"N" help:"the number of payload variables; default KERNELBOT_PAYLOAD_CHUNKS"`
	Mode          *string  `placeholder:"MODE" help:"the mode of the run; default KERNELBOT_MODE"`
	RunID         *string  `name:"run-id" placeholder:"ID" help:"the id of the run; default KERNELBOT_RUN_ID. KERNELBOT_SECRET_RUN_ID asks for a second, secret run"`
	User          *string  `placeholder:"NAME" help:"the user whose run it is"`
	Seconds       *string  `name:"timeout-seconds" placeholder:"N" help:"the time that the run may take"`
	Registry      string   `name:"registry-secret" placeholder:"[STORE:]NAME" help:"the secret with which pipeline image pushes, [buildkite:|kbsec1:]NAME"`
	selectionFlags

	bootstrap bootstrapFlags   // of commands that have them
	static    bool             // see [renderCmd]
	notes     []pipelines.Note // of the last request
}

// bootstrapFlags are about the step that renders the others.
type bootstrapFlags struct {
	Relay         bool   `help:"wait for the evaluation and show its result.json and exit status as those of this job, which needs a queue of its own"`
	ExpectVersion string `placeholder:"VERSION" help:"fail unless this is kbgen VERSION"`
}

// find returns the pipeline asked for.
func (f *pipelineFlags) find() (pipelines.Pipeline, error) {
	if f.Pipeline == "" {
		return pipelines.Pipeline{}, cli.Usagef("no pipeline given, have %s", strings.Join(pipelines.Names(), ", "))
	}
	p, err := pipelines.Find(f.Pipeline)
	return p, asUsage(err)
}

// wanted returns the pipeline asked for, and what the build asks of it.
func (f *pipelineFlags) wanted(env *cli.Env) (p pipelines.Pipeline, r pipelines.Request, err error) {
	if p, err = f.find(); err == nil {
		r, err = f.request(p, env)
	}
	return p, r, err
}

// request is what the flags and the environment ask of p. What cannot be is
// wrong usage.
func (f *requestFlags) request(p pipelines.Pipeline, env *cli.Env) (pipelines.Request, error) {
	selection, err := f.selection(env)
	if err != nil {
		return pipelines.Request{}, err
	}
	var registry pipelines.Secret
	if f.Registry != "" {
		if p.Name != "image" {
			return pipelines.Request{}, cli.Usagef("--registry-secret: got pipeline %s, want image: no other pushes", p.Name)
		}
		if registry, err = pipelines.ParseSecret(f.Registry); err != nil {
			return pipelines.Request{}, cli.Usagef("--registry-secret: %v", err)
		}
	}
	version := ""
	if p.Name == "bootstrap" {
		version = generator.Expected(f.bootstrap.ExpectVersion, cli.Version())
	}
	r, err := pipelines.NewRequest(p, pipelines.Choice{
		GPUs: f.GPU, Image: f.Image, PayloadChunks: f.PayloadChunks, Mode: f.Mode, RunID: f.RunID,
		User: f.User, TimeoutSeconds: f.Seconds, IncludeOff: f.IncludeOff, Static: f.static,
		RefuseImages: f.ImagePolicy == "refuse", Relay: f.bootstrap.Relay, Version: version, Selection: selection, Registry: registry,
	}, env.LookupEnv)
	f.notes = r.Notes
	switch {
	case errors.Is(err, pipelines.ErrNoGPUs):
		return r, cli.WithHint(&cli.UsageError{Err: err}, "--gpu NAME, or one of the variables KERNELBOT_GPU and KERNELBOT_QUEUE")
	case errors.Is(err, pipelines.ErrImage):
		return r, cli.WithHint(&cli.UsageError{Err: err}, "the variable for --image is KERNELBOT_IMAGE")
	}
	return r, asUsage(err)
}

// asUsage makes asking for what does not exist wrong usage. A row that is
// switched off, or a table that is wrong, is not: the request was right.
func asUsage(err error) error {
	if err == nil || errors.As(err, new(*pipelines.OffError)) || errors.As(err, new(*pipelines.TableError)) {
		return err
	}
	return &cli.UsageError{Err: err}
}

// Exit statuses beside those that all commands share.
const (
	exitCheck   = 3 // what was rendered, or given, did not pass the checks
	exitDrift   = 4 // goldens are not what is rendered
	exitRefused = 5 // the agent did not upload
)

// withStatus gives an error of the generator its exit status.
func withStatus(err error) error {
	if errors.As(err, new(*generator.CheckError)) {
		return &cli.ExitError{Status: exitCheck, Err: err}
	}
	if errors.As(err, new(*pipelines.UnknownError)) {
		return asUsage(err) // a step or tag that no selection can find
	}
	return err
}

// selectionFlags say which steps of a pipeline run; the others are skipped.
type selectionFlags struct {
	Only         []string `placeholder:"KEY" help:"only this step and what it depends on, the rest is skipped; PREFIX* for several; may be repeated"`
	Tag          []string `placeholder:"TAG" help:"only steps with this tag and what they depend on; may be repeated"`
	ChangedSince string   `placeholder:"REVISION" help:"only steps whose files changed since this revision"`
	ChangedFiles string   `placeholder:"FILE" help:"only steps whose files are listed in FILE, one a line; - is stdin"`

	read   *pipelines.Selection // once: a list may come on standard input
	within context.Context      // of a command that answers signals itself; nil: signals end the process
}

// Limits on what says which files changed.
const (
	maxChangedBytes = 16 << 20
	gitLimit        = 2 * time.Minute
)

// selection reads the flags, asking git or a file once for what has changed.
func (f *selectionFlags) selection(env *cli.Env) (pipelines.Selection, error) {
	if f.read != nil {
		return *f.read, nil
	}
	s, err := f.ask(env)
	if err == nil {
		f.read = &s
	}
	return s, err
}

func (f *selectionFlags) ask(env *cli.Env) (s pipelines.Selection, err error) {
	s = pipelines.Selection{Keys: f.Only, Tags: f.Tag, ByChange: f.ChangedSince != "" || f.ChangedFiles != ""}
	var listed []byte
	switch {
	case f.ChangedSince != "" && f.ChangedFiles != "":
		return s, cli.Usagef("got --changed-since and --changed-files, want one of them")
	case strings.HasPrefix(f.ChangedSince, "-"):
		return s, cli.Usagef("--changed-since %q: want a revision", f.ChangedSince)
	case f.ChangedSince != "":
		within := f.within
		if within == nil {
			within = context.Background()
		}
		ctx, stop := context.WithTimeout(within, gitLimit)
		defer stop()
		// Of a renamed file both names; --relative is off whatever git is told.
		listed, err = git(ctx, env, "diff", "--no-relative", "--no-renames", "--no-ext-diff", "--name-only", "-z", "--merge-base", f.ChangedSince, "--")
		if err != nil {
			return s, cli.WithHint(fmt.Errorf("--changed-since: %w", err), "a shallow clone lacks the revision: git fetch --unshallow, or --changed-files")
		}
		listed = []byte(strings.ReplaceAll(string(listed), "\x00", "\n"))
	case f.ChangedFiles != "":
		if listed, err = cli.ReadInput(env.Stdin, f.ChangedFiles, maxChangedBytes); err != nil {
			return s, cli.Usagef("--changed-files: %v", err)
		}
	}
	for line := range strings.SplitSeq(string(listed), "\n") {
		if line = strings.TrimSuffix(line, "\r"); line != "" {
			s.Changed = append(s.Changed, line)
		}
	}
	return s, nil
}
