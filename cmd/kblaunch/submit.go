package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/verdict"
)

type submitCmd struct {
	Task       string `arg:""`
	Submission string `arg:""`

	GPU  string `name:"gpu" required:""`
	Mode string `enum:"test,benchmark,profile,leaderboard,private" default:"test"`

	JSON   bool `name:"json"`
	Timing bool

	Seal string `var:"KBLAUNCH_SEAL" placeholder:"FILE"`

	Timeout      time.Duration
	QueueTimeout time.Duration `default:"30m"`

	Org      string `var:"BUILDKITE_ORG" default:"gpu-mode"`
	Pipeline string `var:"BUILDKITE_PIPELINE" default:"kernelbot"`
	API      string `name:"api" var:"KBLAUNCH_API_URL" default:"https://api.buildkite.com/"`
	Branch   string `default:"main"`
	Commit   string `default:"HEAD"`
}

const tokenVar = "BUILDKITE_API_TOKEN"

// Run submits and prints. A submission that did not pass is an exit status
// without an error: everything has been said on stdout.
func (s *submitCmd) Run(ctx context.Context, env *cli.Env) error {
	gpu, payload, err := s.prepare()
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	seal, err := s.seal(env, gpu.Queue)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	token := env.Getenv(tokenVar)
	if token == "" {
		return cli.WithHint(cli.Usagef("no API token"), "put one with the scopes write_builds, read_builds and read_artifacts into %s", tokenVar)
	}
	client, err := launcher.New(launcher.Options{
		BaseURL: s.API, Token: token, Org: s.Org, Pipeline: s.Pipeline, UserAgent: "kblaunch/" + cli.Version(),
	})
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	show := newProgress(env.Stderr)
	report, err := client.Submit(ctx, launcher.Submission{
		Payload: payload, Seal: seal, GPU: gpu.Name, Queue: gpu.Queue, Branch: s.Branch, Commit: s.Commit,
		QueueTimeout: s.QueueTimeout, RunTimeout: s.Timeout, Progress: show.event,
	})
	show.stop()
	if err != nil {
		return trouble(ctx, env.Stderr, err)
	}
	if report.Result.GPUType == "" {
		fmt.Fprintf(env.Stderr, "kblaunch: note: the result names no GPU type: an older kbrun judged it, and nothing says that its machine was a %s\n", gpu.Name)
	}
	if s.Timing {
		calls := client.Calls() // without the one for the table itself
		for _, span := range report.Spans(commandAt(ctx, client, report)) {
			fmt.Fprintf(env.Stderr, "%-10s %8.3f s  %s\n", span.Name, span.Duration.Seconds(), span.Note)
		}
		fmt.Fprintf(env.Stderr, "REST calls: %s\n", calls)
	}
	return s.print(env, payload.RankingBy, report)
}

// commandAt asks when the bootstrap's command began; zero when that cannot be
// had, as without the scope read_build_logs.
func commandAt(ctx context.Context, client *launcher.Client, report *launcher.Report) time.Time {
	jobs := report.Timeline.Jobs
	if len(jobs) < 2 {
		return time.Time{}
	}
	at, err := client.CommandAt(ctx, report.Build, jobs[0].ID)
	if err != nil {
		return time.Time{}
	}
	return at
}

// prepare checks everything that can be checked without Buildkite.
func (s *submitCmd) prepare() (gpu pipelines.GPUType, payload *schema.Payload, err error) {
	if gpu, err = pipelines.Fleet.Lookup(s.GPU); err != nil {
		return gpu, nil, err
	}
	if s.Timeout < 0 || s.QueueTimeout < 0 {
		return gpu, nil, errors.New("timeouts: got one below zero")
	}
	if s.Timeout == 0 {
		s.Timeout = gpu.Timeout + time.Minute
	}
	t, file, err := readTask(s.Task, s.Submission)
	if err != nil {
		return gpu, nil, err
	}
	var arch *string
	if gpu.Arch != "" {
		arch = &gpu.Arch
	}
	payload, err = t.Payload(file, s.Mode, arch, nil)
	return gpu, payload, err
}

// print writes the verdict and turns it into an exit status.
func (s *submitCmd) print(env *cli.Env, ranking string, report *launcher.Report) error {
	v := verdict.OfRanked(report.Result, ranking)
	out := fmt.Sprintf("%s\nbuild %s\n", v.Text(), report.BuildURL)
	if s.JSON {
		out = strings.TrimSuffix(string(report.Raw), "\n") + "\n"
	}
	if _, err := io.WriteString(env.Stdout, out); err != nil {
		return &cli.ExitError{Status: exitTrouble, Err: err}
	}
	switch {
	case v.Passed:
		return nil
	case !v.Judged:
		return &cli.ExitError{Status: exitTrouble, Err: fmt.Errorf("no verdict on the submission, build %s: %s", report.BuildURL, v.Words())}
	}
	return &cli.ExitError{Status: cli.ExitFailed}
}

// trouble puts a launch without a result into words, the end of a log first.
func trouble(ctx context.Context, stderr io.Writer, err error) error {
	var none *launcher.NoResultError
	if errors.As(err, &none) && none.Log != "" {
		fmt.Fprintf(stderr, "kblaunch: the end of the log of job %s:\n", none.LogOf)
		for line := range strings.SplitSeq(none.Log, "\n") {
			fmt.Fprintf(stderr, "  | %s\n", line)
		}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %w", err)
	}
	var api *launcher.APIError
	if errors.As(err, &api) {
		switch api.Status {
		case http.StatusUnauthorized, http.StatusForbidden:
			err = cli.WithHint(err, "the token in %s needs the scopes write_builds, read_builds and read_artifacts", tokenVar)
		case http.StatusNotFound:
			err = cli.WithHint(err, "check --org and --pipeline; a pipeline that the token may not see is not found either")
		}
	}
	return &cli.ExitError{Status: exitTrouble, Err: err}
}

// maxSubmission is Kernelbot's own limit, in bytes.
const maxSubmission = 1_000_000

func readSubmission(r io.Reader, name string) (schema.File, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSubmission+1))
	switch {
	case err != nil:
		return schema.File{}, err
	case len(data) == 0:
		return schema.File{}, fmt.Errorf("submission %s is empty", name)
	case len(data) > maxSubmission:
		return schema.File{}, fmt.Errorf("submission %s: more than %d bytes", name, maxSubmission)
	case strings.ToValidUTF8(string(data), "") != string(data):
		return schema.File{}, fmt.Errorf("submission %s is not UTF-8 text", name)
	}
	return schema.File{Name: name, Text: string(data)}, nil
}

func openSubmission(name string) (schema.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return schema.File{}, fmt.Errorf("submission: %w", err)
	}
	defer f.Close()
	return readSubmission(f, name)
}
