package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen"
	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/fault"
	"github.com/gpu-mode/kbgen/local/notice"
	"github.com/gpu-mode/kbgen/local/session"
)

// serveFlags are common to up and exec.
type serveFlags struct {
	stateFlags    `embed:""`
	Queue         []string      `placeholder:"NAME=N" help:"N agents on queue NAME; may be repeated; default bootstrap=1 and cpu=1"`
	Agents        int           `default:"-1" placeholder:"N" help:"agents of each queue without an N; 0 starts none"`
	Pipeline      []string      `placeholder:"SLUG=FILE" help:"a pipeline with the steps of FILE; may be repeated; default kernelbot, whose step runs kbgen upload evaluate"`
	Checkout      bool          `help:"jobs get a checkout of this git repository's HEAD"`
	Port          int           `placeholder:"N" help:"port of the APIs and the page; default a free one"`
	ArtifactPort  int           `placeholder:"N" help:"port of the artifact store; default a free one"`
	Listen        string        `default:"127.0.0.1" placeholder:"ADDRESS" help:"the address to listen on, if other machines must reach it"`
	Reach         []string      `placeholder:"NAME" help:"a host name by which browsers reach the page; may be repeated"`
	Org           string        `default:"gpu-mode" placeholder:"SLUG" help:"slug of the organization"`
	RateLimits    bool          `help:"count REST calls and answer 429 as the service does"`
	Lenient       bool          `help:"ignore unknown members of request bodies"`
	Webhook       string        `placeholder:"URL" help:"post build.* and job.* events there"`
	WebhookSecret string        `var:"KBLOCAL_WEBHOOK_SECRET" placeholder:"TEXT" help:"key of the events' signature"`
	WebhookCopies int           `default:"1" placeholder:"N" help:"how many times each event is posted"`
	Fault         []string      `sep:"none" placeholder:"RULE" help:"a fault to inject; such as 'GET /v2/* status=500 count=2'; may be repeated"`
	Scopes        []string      `placeholder:"LIST" help:"scopes of the API token, as read_builds,write_builds; default all"`
	LostAfter     time.Duration `default:"30s" placeholder:"DURATION" help:"declare an agent lost after so long without a sign of it"`
}

func (f *serveFlags) queues() ([]session.Queue, error) {
	if f.Agents < -1 || f.Agents > 64 {
		return nil, cli.Usagef("--agents %d: want 0 to 64", f.Agents)
	}
	list := f.Queue
	if f.Agents == 0 {
		if len(list) > 0 {
			return nil, cli.Usagef("--agents 0 starts none: not beside --queue")
		}
		return nil, nil
	}
	if len(list) == 0 {
		list = []string{"bootstrap=1", "cpu=1"}
		if f.Agents > 0 {
			list = []string{"bootstrap", "cpu"}
		}
	}
	var out []session.Queue
	for _, item := range list {
		name, n, given := strings.Cut(item, "=")
		count, err := strconv.Atoi(n)
		if !given && f.Agents > 0 {
			count, err = f.Agents, nil
		}
		if name == "" || err != nil || count < 1 || count > 64 {
			return nil, cli.Usagef("--queue %q: want NAME=N with N from 1 to 64", item)
		}
		out = append(out, session.Queue{Name: name, Count: count})
	}
	return out, nil
}

func (f *serveFlags) pipelines(repo session.Repository) ([]engine.Pipeline, error) {
	if len(f.Pipeline) == 0 {
		return []engine.Pipeline{f.pipeline("kernelbot", kbgen.Bootstrap, repo)}, nil
	}
	var out []engine.Pipeline
	for _, item := range f.Pipeline {
		slug, file, ok := strings.Cut(item, "=")
		if !ok {
			return nil, cli.Usagef("--pipeline %q: want SLUG=FILE", item)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--pipeline %s: %w", slug, err)
		}
		out = append(out, f.pipeline(slug, string(text), repo))
	}
	return out, nil
}

func (f *serveFlags) pipeline(slug, yaml string, repo session.Repository) engine.Pipeline {
	return engine.Pipeline{
		Slug: slug, Configuration: yaml, Repository: repo.Dir, DefaultBranch: repo.Branch,
		SkipCheckout: !f.Checkout,
	}
}

// start opens the stand-in with pipelines and connected agents.
func (f *serveFlags) start(ctx context.Context, env *cli.Env, events io.Writer) (*session.Session, error) {
	queues, err := f.queues()
	if err != nil {
		return nil, err
	}
	if err := f.address(env.Stderr); err != nil {
		return nil, err
	}
	repo := session.FindRepository(ctx)
	if f.Checkout && repo.Dir == "" {
		return nil, cli.Usagef("--checkout: this is no git repository with a commit")
	}
	pipelines, err := f.pipelines(repo)
	if err != nil {
		return nil, err
	}
	opts := local.Options{
		Port: f.Port, ArtifactPort: f.ArtifactPort, Listen: f.Listen, Hosts: f.Reach, Organization: f.Org, RateLimits: f.RateLimits, Lenient: f.Lenient, Scopes: f.Scopes, LostAfter: f.LostAfter,
		Log: func(format string, args ...any) { fmt.Fprintf(events, "kblocal: "+format+"\n", args...) },
	}
	if f.Webhook != "" {
		copies := f.WebhookCopies - 1
		opts.Webhook = &notice.Options{
			URL: f.Webhook, Token: f.WebhookSecret,
			Plan: func(string) notice.Plan { return notice.Plan{Copies: copies} },
		}
	}
	for _, text := range f.Fault {
		rule, err := fault.Parse(text)
		if err != nil {
			return nil, cli.Usagef("--fault %q: %v", text, err)
		}
		opts.Faults = append(opts.Faults, rule)
	}
	s, err := f.open(env, opts)
	if err != nil {
		return nil, err
	}
	if err := s.Populate(ctx, pipelines, queues); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// address checks where to listen. Anything but loopback is a network, and said.
func (f *serveFlags) address(warn io.Writer) error {
	for _, port := range []int{f.Port, f.ArtifactPort} {
		if port < 0 || port > 65535 {
			return cli.Usagef("port %d: want 0 to 65535", port)
		}
	}
	if f.Port != 0 && f.Port == f.ArtifactPort {
		return cli.Usagef("--artifact-port %d: want another one than --port", f.ArtifactPort)
	}
	addr, err := netip.ParseAddr(f.Listen)
	if err != nil {
		return cli.Usagef("--listen %q: want an IP address", f.Listen)
	}
	if !addr.Unmap().IsLoopback() {
		fmt.Fprintf(warn, "kblocal: WARNING: listening on %s, which others can reach: they read every build and log here without a token,\n"+
			"kblocal: WARNING: and everything goes over the network unencrypted. Without --listen, it stays on this machine.\n", f.Listen)
	}
	return nil
}

type upCmd struct {
	serveFlags `embed:""`
}

func (c *upCmd) Run(ctx context.Context, env *cli.Env) (err error) {
	s, err := c.start(ctx, env, env.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.PrintPage(env.Stderr)
	for _, line := range slices.Concat(s.Exports(s.Engine.Pipelines()[0].Slug), s.AgentExports()) {
		fmt.Fprintf(env.Stdout, "export %s\n", line)
	}
	if len(s.Engine.Agents()) == 0 {
		fmt.Fprintf(env.Stderr, "kblocal: serving without agents; start your own: buildkite-agent start --config %s --tags queue=cpu\n", s.AgentConfig())
	} else {
		fmt.Fprintf(env.Stderr, "kblocal: serving, agents connected; interrupt to stop\n")
	}
	f := session.NewFollower(s.Engine, env.Stderr, session.Shown{Logs: true, Plain: plain(env)})
	f.Run(ctx)
	fmt.Fprintf(env.Stderr, "kblocal: stopping\n")
	return nil
}

type execCmd struct {
	serveFlags `embed:""`
	Verbose    bool     `help:"show what happens on stderr"`
	Command    []string `arg:"" passthrough:""`
}

func (c *execCmd) Run(ctx context.Context, env *cli.Env) (err error) {
	command := c.Command
	if command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return cli.Usagef("exec: no command given")
	}
	events := io.Discard
	if c.Verbose {
		events = env.Stderr
	}
	s, err := c.start(ctx, env, events)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if c.Verbose {
		watching, stop := context.WithCancel(ctx)
		f := session.NewFollower(s.Engine, env.Stderr, session.Shown{Logs: true, Plain: plain(env)})
		var done sync.WaitGroup
		done.Go(func() { f.Run(watching) })
		defer done.Wait()
		defer stop()
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = session.StopTime
	cmd.Stdin, cmd.Stdout, cmd.Stderr = env.Stdin, env.Stdout, env.Stderr
	cmd.Env = append(env.Environ(), s.Exports(s.Engine.Pipelines()[0].Slug)...)
	err = cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() > 0 {
		return &cli.ExitError{Status: ended.ExitCode()}
	}
	return err
}
