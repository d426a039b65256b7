// Kblaunch sends kernel submissions to Buildkite and prints their verdicts.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/examples"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/text"
)

// exitTrouble is a run that gave no verdict on the submission.
const exitTrouble = 3

func main() { os.Exit(cli.Main(program())) }

type grammar struct {
	Submit   submitCmd   `cmd:""`
	Watch    watchCmd    `cmd:""`
	List     listCmd     `cmd:""`
	Result   resultCmd   `cmd:""`
	Log      logCmd      `cmd:""`
	Cancel   cancelCmd   `cmd:""`
	Retry    retryCmd    `cmd:""`
	Compare  compareCmd  `cmd:""`
	Examples examplesCmd `cmd:""`
	Queues   queuesCmd   `cmd:""`
}

func program() cli.Program {
	return cli.Program{
		Name:    "kblaunch",
		Grammar: &grammar{},
		Help:    help,
		Failed:  exitTrouble,
		Values: map[string]func() []string{
			"--gpu": pipelines.Fleet.Names,
			"--queue": func() (queues []string) {
				for _, g := range pipelines.Fleet {
					queues = append(queues, g.Queue)
				}
				return queues
			},
			"--state": states,
			"task":    exampleNames,
		},
	}
}

func exampleNames() (names []string) {
	for _, e := range examples.List() {
		names = append(names, e.Name)
	}
	return names
}

type examplesCmd struct {
	JSON bool `help:"print JSON"`
}

// exampleJSON is an example as --json prints it.
type exampleJSON struct {
	Name        string   `json:"name"`
	Lang        string   `json:"lang"`
	Submissions []string `json:"submissions"`
	Description string   `json:"description"`
}

// Run lists the examples.
func (c *examplesCmd) Run(_ context.Context, env *cli.Env) error {
	var list []exampleJSON
	for _, e := range examples.List() {
		list = append(list, exampleJSON{e.Name, e.Lang, e.Submissions, e.Description})
	}
	return cli.PrintList(env.Stdout, c.JSON, list, "TASK\tLANG\tSUBMISSIONS\tDESCRIPTION", func(e exampleJSON) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", e.Name, e.Lang, strings.Join(e.Submissions, " "), e.Description)
	})
}

const tokenVar = "BUILDKITE_API_TOKEN"

// clientFlags say where the builds are.
type clientFlags struct {
	Org      string `var:"BUILDKITE_ORG" default:"gpu-mode" placeholder:"SLUG" help:"slug of the organization"`
	Pipeline string `var:"BUILDKITE_PIPELINE" default:"kernelbot" placeholder:"SLUG" help:"slug of the pipeline"`
	API      string `name:"api" var:"KBLAUNCH_API_URL" default:"https://api.buildkite.com/" placeholder:"URL" help:"the address of the REST API"`
}

// client makes a client for whoever runs this.
func (f *clientFlags) client(env *cli.Env) (*launcher.Client, error) {
	return newClient(env, "write_builds, read_builds and read_artifacts", launcher.Options{
		BaseURL: f.API, Org: f.Org, Pipeline: f.Pipeline, Installation: installation(env),
	})
}

// newClient makes a client with the token of the environment, which needs the
// scopes.
func newClient(env *cli.Env, scopes string, o launcher.Options) (*launcher.Client, error) {
	o.Token, o.UserAgent, o.Log = env.Getenv(tokenVar), "kblaunch/"+cli.Version(), requestLog(env)
	if o.Token == "" {
		return nil, cli.WithHint(cli.Usagef("no API token"), "put one with the scopes %s into %s", scopes, tokenVar)
	}
	client, err := launcher.New(o)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return client, nil
}

// requestLog is where the launcher tells of every request: nowhere, without --debug.
func requestLog(env *cli.Env) *slog.Logger {
	if !env.Debug {
		return nil
	}
	return slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// installation tells this person's builds on this machine from others', and
// names neither to those who may read builds.
func installation(env *cli.Env) string {
	host, _ := os.Hostname() // without one, the user's name has to do
	sum := sha256.Sum256([]byte(strconv.Itoa(os.Getuid()) + " " + env.Getenv("USER") + "@" + host))
	return "kblaunch-" + hex.EncodeToString(sum[:6])
}

// buildNumber reads the number of a build, as 4711 or #4711.
func buildNumber(name string) (int, bool) {
	number, err := strconv.Atoi(strings.TrimPrefix(name, "#"))
	return number, err == nil && number > 0
}

// open finds a run by its build's number, or by its own id.
func open(ctx context.Context, client *launcher.Client, name string) (*launcher.Run, error) {
	if number, ok := buildNumber(name); ok {
		run, err := client.Open(ctx, number)
		if api := new(launcher.APIError); errors.As(err, &api) && api.Status == http.StatusNotFound {
			return nil, cli.WithHint(&cli.ExitError{Status: exitTrouble, Err: fmt.Errorf("there is no build %d", number)}, "kblaunch list; and check --org and --pipeline")
		}
		return run, trouble(ctx, err)
	}
	if !launcher.ValidRunID(name) {
		return nil, cli.Usagef("got %s, want the number of a build or a run id", text.Quote(name))
	}
	run, err := client.Adopt(ctx, name)
	if errors.Is(err, launcher.ErrNoBuild) {
		return nil, cli.WithHint(&cli.ExitError{Status: exitTrouble, Err: err}, "kblaunch list shows builds and their runs; one that was just made may take some seconds to be found")
	}
	return run, trouble(ctx, err)
}

// trouble puts an error that is no verdict into words, and gives it its exit
// status; nil stays nil.
func trouble(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil { // Ctrl-C: what became of the build is said, not Go's word for it
		err = fmt.Errorf("interrupted: %s", strings.TrimSuffix(err.Error(), ": "+context.Canceled.Error()))
	}
	if api, ok := errors.AsType[*launcher.APIError](err); ok {
		switch api.Status {
		case http.StatusUnauthorized, http.StatusForbidden:
			err = cli.WithHint(err, "the token in %s needs the scopes write_builds, read_builds and read_artifacts", tokenVar)
		case http.StatusNotFound:
			err = cli.WithHint(err, "check --org and --pipeline; a pipeline that the token may not see is not found either")
		}
	}
	return &cli.ExitError{Status: exitTrouble, Err: err}
}

// look finds a run, and its build as it is now.
func (f *clientFlags) look(ctx context.Context, env *cli.Env, name string) (*launcher.Client, *launcher.Run, *launcher.Build, error) {
	client, err := f.client(env)
	if err != nil {
		return nil, nil, nil, err
	}
	run, err := open(ctx, client, name)
	if err != nil {
		return nil, nil, nil, err
	}
	b, err := client.Build(ctx, run.Build)
	return client, run, b, trouble(ctx, err)
}
