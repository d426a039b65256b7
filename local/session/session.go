package session

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

	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/steps"
)

// StopTime bounds the clean shutdown of agents and their jobs.
const StopTime = time.Minute

// A Session is a running stand-in with what belongs to it.
type Session struct {
	*local.Server
	watch  *watch
	Dir    string // of its state
	remove bool   // the directory, at the end
}

// Close stops everything and removes a temporary directory.
func (s *Session) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), StopTime)
	defer cancel()
	err := errors.Join(s.Server.Close(ctx), s.watch.stop())
	for _, secret := range []string{s.PageFile(), s.AgentConfig()} {
		if e := os.Remove(secret); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, s.removeDir())
}

// PageFile holds the page's address with buttons.
func (s *Session) PageFile() string { return filepath.Join(s.Dir, "page.url") }

func (s *Session) removeDir() error {
	if !s.remove {
		return nil
	}
	return os.RemoveAll(s.Dir)
}

// Queue asks for agents.
type Queue struct {
	Name  string
	Count int
}

// Populate makes the pipelines and starts the agents.
func (s *Session) Populate(ctx context.Context, pipelines []engine.Pipeline, queues []Queue) error {
	for _, p := range pipelines {
		if _, err := s.Engine.CreatePipeline(p); err != nil {
			return fmt.Errorf("pipeline %s: %w", p.Slug, err)
		}
	}
	total := 0
	for _, q := range queues {
		if err := s.StartAgents(q.Name, q.Count); err != nil {
			return err
		}
		total += q.Count
	}
	return s.AwaitAgents(ctx, total)
}

// Exports lists the variables a launcher needs.
func (s *Session) Exports(slug string) []string {
	return []string{
		"KBLAUNCH_API_URL=" + s.URL() + "/",
		"BUILDKITE_API_TOKEN=" + s.APIToken(),
		"BUILDKITE_ORG=" + s.Engine.Organization(),
		"BUILDKITE_PIPELINE=" + slug,
	}
}

// startMissing starts count agents for every queue that a job asks for and no
// agent serves, until ctx ends.
func (s *Session) startMissing(ctx context.Context, count int) error {
	sub := s.Engine.Subscribe()
	defer sub.Close()
	for {
		for _, rules := range s.Engine.Unserved() {
			var tags []string
			for _, rule := range rules {
				if !strings.HasPrefix(rule, "queue=") {
					tags = append(tags, strings.Replace(rule, "=*", "=any", 1))
				}
			}
			if err := s.StartAgents(steps.QueueOf(rules), count, tags...); err != nil {
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

// document is the build as the REST API shows it.
func (s *Session) document(ctx context.Context, b engine.Build) (map[string]any, error) {
	url := fmt.Sprintf("%s/v2/organizations/%s/pipelines/%s/builds/%d?include_retried_jobs=true",
		s.URL(), s.Engine.Organization(), b.Pipeline, b.Number)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.APIToken())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var build map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&build); err != nil {
		return nil, fmt.Errorf("reading the build: %w", err)
	}
	return build, nil
}

// Open starts the stand-in without agents. Its state lies in dir, "" for a
// temporary directory; what else there is to say of it, opts do.
func Open(dir string, opts local.Options) (*Session, error) {
	s := &Session{Dir: dir}
	var err error
	if s.Dir == "" {
		s.remove = true
		if s.Dir, err = os.MkdirTemp("", "kblocal-"); err == nil {
			err = os.Chmod(s.Dir, 0o711) // the jobs' temporary files lie in it, see package local
		}
	} else {
		s.Dir, err = filepath.Abs(s.Dir)
	}
	if err != nil {
		return nil, err
	}
	opts.Dir = s.Dir
	opts.PageHint = "the address in " + s.PageFile() + " has buttons"
	if self, err := os.Executable(); err == nil {
		opts.AgentPath = []string{filepath.Dir(self)} // kbgen and kbrun lie beside
	}
	if s.Server, err = local.Start(opts); err != nil {
		return nil, errors.Join(err, s.removeDir())
	}
	remove := s.Scratch()
	if s.remove {
		remove = append(remove, s.Dir)
	}
	if s.watch, err = startWatch(s.Marker(), remove); err != nil {
		return nil, errors.Join(err, s.Server.Close(context.Background()))
	}
	if err := errors.Join(writeSecret(s.PageFile(), s.PageURL()+"\n"), s.writeAgentConfig()); err != nil {
		return nil, errors.Join(err, s.Close())
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

// ErrNoAgent is a machine without an agent that could be found.
var ErrNoAgent = errors.New("no buildkite-agent beside kblocal or on PATH")

// FindAgent finds the buildkite-agent binary: the one named, the one beside this
// program, or that on the path, as PATH has it.
//
// Error: [ErrNoAgent] among them.
func FindAgent(named, searched string) (string, error) {
	if named != "" {
		path, err := exec.LookPath(named)
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
	for _, dir := range filepath.SplitList(searched) {
		if path := filepath.Join(dir, "buildkite-agent"); executable(path) {
			return path, nil
		}
	}
	return "", ErrNoAgent
}

// Plugins is the directory with plugins: the one named, or that which make puts
// beside kblocal.
func Plugins(named string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
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

// PrintPage says where the page is. Its address with buttons is a secret, for a
// person's eyes: a log gets the name of the file that has it.
func (s *Session) PrintPage(w io.Writer) {
	if terminal(w) {
		fmt.Fprintf(w, "kblocal: page %s\n", s.PageURL())
		return
	}
	fmt.Fprintf(w, "kblocal: page %s/, with buttons at the address in %s\n", s.URL(), s.PageFile())
}
