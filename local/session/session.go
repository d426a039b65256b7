package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
)

// stopTime bounds the clean shutdown of agents and their jobs.
const stopTime = time.Minute

// A session is a running stand-in with what belongs to it.
type session struct {
	*local.Server
	watch  *watch
	dir    string
	remove bool // the directory, at the end
}

// close stops everything and removes a temporary directory.
func (s *session) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	err := errors.Join(s.Close(ctx), s.watch.stop())
	for _, secret := range []string{s.pageFile(), s.agentConfig()} {
		if e := os.Remove(secret); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, s.removeDir())
}

// pageFile holds the page's address with buttons.
func (s *session) pageFile() string { return filepath.Join(s.dir, "page.url") }

func (s *session) removeDir() error {
	if !s.remove {
		return nil
	}
	return os.RemoveAll(s.dir)
}

func (s *session) populate(ctx context.Context, pipelines []engine.Pipeline, queues []queueFlag) error {
	for _, p := range pipelines {
		if _, err := s.Engine.CreatePipeline(p); err != nil {
			return fmt.Errorf("pipeline %s: %w", p.Slug, err)
		}
	}
	total := 0
	for _, q := range queues {
		if err := s.StartAgents(q.name, q.count); err != nil {
			return err
		}
		total += q.count
	}
	return s.AwaitAgents(ctx, total)
}

// exports lists the variables a launcher needs.
func (s *session) exports(slug string) []string {
	return []string{
		"KBLAUNCH_API_URL=" + s.URL() + "/",
		"BUILDKITE_API_TOKEN=" + s.APIToken(),
		"BUILDKITE_ORG=" + s.Engine.Organization(),
		"BUILDKITE_PIPELINE=" + slug,
	}
}

// startMissing starts count agents for every queue that a job asks for and no
// agent serves, until ctx ends.
func (s *session) startMissing(ctx context.Context, count int) error {
	sub := s.Engine.Subscribe()
	defer sub.Close()
	for {
		for _, rules := range s.Engine.Unserved() {
			queue := "default"
			var tags []string
			for _, rule := range rules {
				if name, ok := strings.CutPrefix(rule, "queue="); ok {
					queue = name
					continue
				}
				tags = append(tags, strings.Replace(rule, "=*", "=any", 1))
			}
			if err := s.StartAgents(queue, count, tags...); err != nil {
				return err
			}
		}
		ev, err := sub.Next(ctx)
		for err == nil && ev.Name != engine.EventJobScheduled {
			ev, err = sub.Next(ctx)
		}
		if err != nil {
			return nil // the run is over
		}
	}
}

// printBuild prints the build as the REST API shows it.
func (s *session) printBuild(ctx context.Context, b engine.Build, out io.Writer) error {
	url := fmt.Sprintf("%s/v2/organizations/%s/pipelines/%s/builds/%d?include_retried_jobs=true",
		s.URL(), s.Engine.Organization(), b.Pipeline, b.Number)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.APIToken())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var build map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&build); err != nil {
		return fmt.Errorf("reading the build: %w", err)
	}
	return cli.PrintJSON(out, build)
}

// stateFlags are common to all commands.
type stateFlags struct {
	Dir     string   `placeholder:"DIR" help:"keep state, logs and artifacts in DIR; default a temporary directory"`
	Agent   string   `var:"KBLOCAL_AGENT" placeholder:"PATH" help:"the buildkite-agent to use; default the one beside kblocal, else on PATH"`
	Plugins string   `placeholder:"DIR" help:"take plugins from DIR/NAME and DIR/OWNER/NAME, git clones, or from DIR/NAME@VERSION; default bin/plugins beside kblocal"`
	Secrets []string `name:"secrets-file" sep:"none" placeholder:"F" help:"the secret store: lines as of --env-file, never shown"`
}

// open starts the stand-in without agents.
func (f *stateFlags) open(env *cli.Env, opts local.Options) (*session, error) {
	s := &session{dir: f.Dir}
	var err error
	if s.dir == "" {
		s.remove = true
		if s.dir, err = os.MkdirTemp("", "kblocal-"); err == nil {
			err = os.Chmod(s.dir, 0o711) // the jobs' temporary files lie in it, see package local
		}
	} else {
		s.dir, err = filepath.Abs(s.dir)
	}
	if err != nil {
		return nil, err
	}
	opts.Dir = s.dir
	opts.PageHint = "the address in " + s.pageFile() + " has buttons"
	opts.Version = cli.Version()
	opts.AgentEnv = env.Environ()
	if opts.AgentBinary, err = f.agent(env); err != nil {
		return nil, errors.Join(err, s.removeDir())
	}
	if self, err := os.Executable(); err == nil {
		opts.AgentPath = []string{filepath.Dir(self)} // kbgen and kbrun lie beside
	}
	if opts.Secrets, err = f.secrets(env); err != nil {
		return nil, errors.Join(err, s.removeDir())
	}
	if opts.Plugins, err = f.plugins(); err != nil {
		return nil, errors.Join(err, s.removeDir())
	}
	if s.Server, err = local.Start(opts); err != nil {
		return nil, errors.Join(err, s.removeDir())
	}
	remove := s.Scratch()
	if s.remove {
		remove = append(remove, s.dir)
	}
	if s.watch, err = startWatch(s.Marker(), remove); err != nil {
		return nil, errors.Join(err, s.Close(context.Background()))
	}
	if err := errors.Join(writeSecret(s.pageFile(), s.PageURL()+"\n"), s.writeAgentConfig()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// writeSecret writes a file for this user only, also where one lies that others
// may read.
func writeSecret(path, text string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// agent finds the buildkite-agent binary.
func (f *stateFlags) agent(env *cli.Env) (string, error) {
	if f.Agent != "" {
		path, err := exec.LookPath(f.Agent)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		return path, err
	}
	if self, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(self), "buildkite-agent"); executable(path) {
			return path, nil
		}
	}
	for _, dir := range filepath.SplitList(env.Getenv("PATH")) {
		if path := filepath.Join(dir, "buildkite-agent"); executable(path) {
			return path, nil
		}
	}
	return "", cli.WithHint(errors.New("no buildkite-agent beside kblocal or on PATH"),
		"make agent builds one, --agent PATH names one")
}

// plugins is the directory with plugins: the one named, or that which make puts
// beside kblocal.
func (f *stateFlags) plugins() (string, error) {
	if f.Plugins != "" {
		return filepath.Abs(f.Plugins)
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil
	}
	dir := filepath.Join(filepath.Dir(self), "plugins")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		return "", nil
	}
	return dir, nil
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
