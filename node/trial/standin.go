package trial

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/schema/text"
)

// kblocal finds the program that stands in for Buildkite: beside this one, in the
// directory where the node's package has it, or where programs of the system are.
func kblocal() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), "kblocal")
	for _, name := range []string{beside, filepath.Join(filepath.Dir(self), "../lib/kbgen-node/kblocal"), "kblocal"} {
		if path, ok := system.Look(name); ok {
			return path, nil
		}
	}
	return "", fmt.Errorf("no kblocal at %s or on %s: verify starts it in Buildkite's place, and kbgen's package for nodes has it", beside, system.SearchPath)
}

// A standIn is Buildkite on this machine: kblocal, for as long as a verification
// takes.
type standIn struct {
	cmd                            *exec.Cmd
	url, org, apiToken, agentToken string // url ends in "/"
}

// startStandIn starts kblocal with pipelines, a file for each name, and waits until
// it serves. It keeps everything in dir.
func startStandIn(ctx context.Context, program, agent, dir string, pipelines map[string]string) (*standIn, error) {
	args := []string{"up", "--agents", "0", "--lost-after", "5m", "--dir", dir, "--agent", agent}
	for name, file := range pipelines {
		args = append(args, "--pipeline", name+"="+file)
	}
	log, err := os.Create(dir + ".log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := &standIn{cmd: exec.Command(program, args...)}
	s.cmd.Env, s.cmd.Dir, s.cmd.Stderr = system.Environ(), "/", log
	// An interrupt at the terminal is for kbnode, which still needs the stand-in to
	// end the jobs. A kbnode that is killed takes it along.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.cmd.Process.Kill() })
	defer stop()
	exports := map[string]string{}
	for lines := bufio.NewScanner(out); exports["BUILDKITE_AGENT_TOKEN"] == "" && lines.Scan(); {
		name, value, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "export "), "=")
		exports[name] = value
	}
	s.url, s.org = exports["KBLAUNCH_API_URL"], exports["BUILDKITE_ORG"]
	s.apiToken, s.agentToken = exports["BUILDKITE_API_TOKEN"], exports["BUILDKITE_AGENT_TOKEN"]
	if s.agentToken == "" {
		err := s.cmd.Wait()
		output, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("kblocal does not serve: %w: %s", errors.Join(ctx.Err(), err), text.Line(string(output), 300))
	}
	return s, nil
}

// close ends kblocal, or kills it when ctx is done first.
func (s *standIn) close(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = s.cmd.Process.Kill() })()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("kblocal: %w", err)
	}
	return nil
}

// A build is one of the stand-in's, as its REST API has it.
type build struct {
	URL   string `json:"url"`
	State string `json:"state"`
	Jobs  []job  `json:"jobs"`
}

type job struct {
	State   string `json:"state"`
	StepKey string `json:"step_key"`
	RawLog  string `json:"raw_log_url"`
	Agent   struct {
		Name string `json:"name"`
	} `json:"agent"`
}

// pollInterval is the time between two questions to the stand-in.
const pollInterval = 500 * time.Millisecond

// run makes a build and waits for its end.
func (s *standIn) run(ctx context.Context, pipeline string, env map[string]string) (build, error) {
	var b build
	in := map[string]any{"commit": "HEAD", "branch": "main", "message": "kbnode verify", "env": env}
	err := s.call(ctx, http.MethodPost, s.url+"v2/organizations/"+s.org+"/pipelines/"+pipeline+"/builds", in, &b)
	for err == nil && slices.Contains([]string{"creating", "scheduled", "running", "failing", "canceling"}, b.State) {
		if err = pause(ctx); err == nil {
			url := b.URL + "?include_retried_jobs=true"
			b = build{} // what is null in an answer leaves a field as it is
			err = s.call(ctx, http.MethodGet, url, nil, &b)
		}
	}
	return b, err
}

// awaitAgents waits until n agents are connected.
func (s *standIn) awaitAgents(ctx context.Context, n int) error {
	for {
		var agents []struct{}
		if err := s.call(ctx, http.MethodGet, s.url+"v2/organizations/"+s.org+"/agents?per_page=100", nil, &agents); err != nil {
			return err
		}
		if len(agents) >= n {
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("waiting for %d agents, %d are there: %w", n, len(agents), err)
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pollInterval):
		return nil
	}
}

// artifact returns the content of a file that the build's job has uploaded.
func (s *standIn) artifact(ctx context.Context, b build, name string) (content []byte, err error) {
	var all []struct {
		Path     string `json:"path"`
		State    string `json:"state"`
		Download string `json:"download_url"`
	}
	if err := s.call(ctx, http.MethodGet, b.URL+"/artifacts", nil, &all); err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Path == name && a.State == "finished" {
			return content, s.call(ctx, http.MethodGet, a.Download, nil, &content)
		}
	}
	return nil, errors.New("no such artifact")
}

// log returns the beginning of a job's log.
func (s *standIn) log(ctx context.Context, j job) (content []byte, err error) {
	return content, s.call(ctx, http.MethodGet, j.RawLog, nil, &content)
}

// maxContent bounds what is read of an answer, in bytes.
const maxContent = 16 << 20

// client leaves the token out of what a redirect asks the store of artifacts.
var client = http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error {
	r.Header.Del("Authorization")
	return nil
}}

// call sends a request and decodes the answer, or keeps it as it is in a []byte.
func (s *standIn) call(ctx context.Context, method, url string, in, out any) error {
	var body io.Reader // a GET must have none
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+s.apiToken)
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxContent))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("kblocal answers %s: %s", resp.Status, text.Line(string(answer), 300))
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = answer
		return nil
	}
	return json.Unmarshal(answer, out)
}
