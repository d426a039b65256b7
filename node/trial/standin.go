package trial

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
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
	ended                          chan error
}

// startStandIn starts kblocal with pipelines, a file for each name, and waits until
// it serves. It keeps everything in dir, and calls gone when kblocal ends, so
// that its clients stop asking.
func startStandIn(ctx context.Context, program, agent, dir string, pipelines map[string]string, gone func()) (*standIn, error) {
	args := []string{"up", "--agents", "0", "--lost-after", "5m", "--dir", dir, "--agent", agent}
	for name, file := range pipelines {
		args = append(args, "--pipeline", name+"="+file)
	}
	log, err := os.Create(dir + ".log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := &standIn{cmd: exec.Command(program, args...), ended: make(chan error, 1)}
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
	go func() {
		s.ended <- s.cmd.Wait()
		gone()
	}()
	return s, nil
}

// close ends kblocal, or kills it when ctx is done first.
func (s *standIn) close(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = s.cmd.Process.Kill() })()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := <-s.ended; err != nil {
		return fmt.Errorf("kblocal: %w", err)
	}
	return nil
}

// client returns a client that makes builds of one of the stand-in's pipelines.
func (s *standIn) client(pipeline string) (*launcher.Client, error) {
	return launcher.New(launcher.Options{BaseURL: s.url, Token: s.apiToken, Org: s.org, Pipeline: pipeline, UserAgent: "kbnode verify"})
}

// pollInterval is the time between two questions to the stand-in.
const pollInterval = 500 * time.Millisecond

// awaitBuild waits for the end of a build.
func awaitBuild(ctx context.Context, client *launcher.Client, number int) (*launcher.Build, error) {
	for {
		b, err := client.Build(ctx, number)
		if err == nil && !b.Over() {
			err = pause(ctx)
		}
		if err != nil || b.Over() {
			return b, err
		}
	}
}

// awaitAgents waits until n agents are connected.
func (s *standIn) awaitAgents(ctx context.Context, n int) error {
	client, err := s.client("agents") // agents are the organization's, whichever the pipeline
	if err != nil {
		return err
	}
	for {
		agents, err := client.Agents(ctx)
		if err != nil || len(agents) >= n {
			return err
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
