// Package spawn runs real buildkite-agent processes for the stand-in, and ends
// them with everything they started. It knows nothing of builds.
package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// Options configure agents. All fields but Hidden are required.
type Options struct {
	Agent    string   // path of the buildkite-agent binary
	Endpoint string   // of the Agent API, "http://127.0.0.1:8900/v3"
	Token    string   // registration token; agents get it by environment
	Dir      string   // for checkouts, plugins, hooks and agent logs
	Sockets  string   // directory for sockets; a short path, the kernel allows 107 bytes in all
	Temp     string   // TMPDIR of agents and jobs: the agent leaves files with payloads there when it is killed
	Path     []string // directories put before the agents' PATH
	Env      []string // "NAME=value", what agents and jobs inherit
	Marker   string   // "NAME=value", in the environment of everything started; see [Kill]

	// Grace is what a job gets between SIGTERM and SIGKILL, whole seconds.
	Grace time.Duration

	// Died is called with the process id of every agent process that ends
	// without having been stopped. It may be nil.
	Died func(pid int)

	// Log takes one line per event, for people. It may be nil.
	Log func(format string, args ...any)
}

// A Pool is the agents of one queue: one process with a worker per agent,
// started again when it dies.
type Pool struct {
	opts   Options
	queue  string
	count  int
	tags   []string
	marker string // in the environment of everything the pool starts

	stop    chan struct{}
	stopped chan struct{}
}

// markerName is the variable that marks what a pool started.
const markerName = "KBLOCAL_POOL"

// restartPause is the wait before a dead agent is started again. It grows
// while agents die young, up to restartMax.
const (
	restartPause = 100 * time.Millisecond
	restartMax   = 5 * time.Second
)

// Start starts count agents of a queue with extra tags ("size=big"). The
// first start must succeed; agents connect up to a second later.
func Start(opts Options, queue string, count int, tags ...string) (*Pool, error) {
	p := &Pool{
		opts: opts, queue: queue, count: count, tags: tags,
		marker: fmt.Sprintf("%s=%d-%s-%d", markerName, os.Getpid(), queue, time.Now().UnixNano()),
		stop:   make(chan struct{}), stopped: make(chan struct{}),
	}
	if p.opts.Log == nil {
		p.opts.Log = func(string, ...any) {}
	}
	if p.opts.Died == nil {
		p.opts.Died = func(int) {}
	}
	for _, dir := range []string{"builds", "plugins", "hooks", "agents"} {
		if err := os.MkdirAll(filepath.Join(opts.Dir, dir), 0o700); err != nil {
			return nil, err
		}
	}
	started := make(chan error, 1)
	go p.keep(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting agents of queue %q: %w", queue, err)
	}
	return p, nil
}

// keep runs the agent process until the pool is stopped.
func (p *Pool) keep(started chan<- error) {
	defer close(p.stopped)
	pause := restartPause
	for first := true; ; first = false {
		began := time.Now()
		proc, err := p.launch()
		if first {
			started <- err
			if err != nil {
				return
			}
		}
		if err == nil {
			if p.wait(proc) {
				return
			}
			p.opts.Log("agents of queue %s ended by themselves (%s), starting them again", p.queue, proc.cmd.ProcessState)
		} else {
			p.opts.Log("agents of queue %s did not start: %v", p.queue, err)
		}
		if time.Since(began) > 10*time.Second {
			pause = restartPause
		}
		select {
		case <-time.After(pause):
		case <-p.stop:
			return
		}
		pause = min(2*pause, restartMax)
	}
}

// wait waits for the process to end, or ends it when the pool is stopped. It
// reports whether the pool is stopped.
func (p *Pool) wait(proc *process) bool {
	select {
	case <-proc.done:
		select {
		case <-p.stop:
			return true
		default:
		}
		p.opts.Died(proc.cmd.Process.Pid)
		Kill(p.marker) // its jobs, which have no agent any more
		return false
	case <-p.stop:
	}
	// SIGQUIT: cancel the job and leave.
	_ = proc.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-proc.done:
	case <-time.After(p.opts.Grace + 3*time.Second):
		_ = syscall.Kill(-proc.cmd.Process.Pid, syscall.SIGKILL) // its group; Kill finds what left that
		<-proc.done
	}
	Kill(p.marker)
	return true
}

// Stop ends the agents, the jobs they run and what those left behind. It
// returns ctx's error when that takes too long.
func (p *Pool) Stop(ctx context.Context) error {
	close(p.stop)
	select {
	case <-p.stopped:
		return nil
	case <-ctx.Done():
		Kill(p.marker)
		return fmt.Errorf("stopping agents of queue %q: %w", p.queue, ctx.Err())
	}
}

// launch starts one agent process.
func (p *Pool) launch() (*process, error) {
	if p.opts.Agent == "" {
		return nil, errors.New("no buildkite-agent binary given")
	}
	config := filepath.Join(p.opts.Dir, "agents", "empty.cfg") // not the machine's own configuration
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(p.opts.Dir, "agents", p.queue+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(p.opts.Agent, "start",
		"--config", config,
		"--name", p.queue+"-%spawn",
		"--spawn", fmt.Sprint(p.count),
		"--tags", strings.Join(append([]string{"queue=" + p.queue}, p.tags...), ","),
		"--build-path", filepath.Join(p.opts.Dir, "builds"),
		"--plugins-path", filepath.Join(p.opts.Dir, "plugins"),
		"--hooks-path", filepath.Join(p.opts.Dir, "hooks"),
		"--sockets-path", p.opts.Sockets,
		"--cancel-grace-period", fmt.Sprint(int(p.opts.Grace.Seconds())),
		"--no-ssh-keyscan",
		"--no-color",
	)
	cmd.Env = p.environment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = p.opts.Dir
	return startProcess(cmd)
}

// environment is what the agents inherit: Env without anything that would
// configure them, and the pool's own.
func (p *Pool) environment() []string {
	path := os.DevNull
	env := slices.DeleteFunc(slices.Clone(p.opts.Env), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		if name == "PATH" {
			path = value
		}
		return name == "PATH" || name == "TMPDIR" || strings.HasPrefix(name, "BUILDKITE") || strings.HasPrefix(name, schema.EnvPrefix) ||
			strings.HasPrefix(name, "KBLAUNCH_") || strings.HasPrefix(name, "SUBMISSION_")
	})
	dirs := append(slices.Clone(p.opts.Path), filepath.Dir(p.opts.Agent), path)
	return append(env,
		"PATH="+strings.Join(dirs, string(os.PathListSeparator)),
		"TMPDIR="+p.opts.Temp,
		"BUILDKITE_AGENT_TOKEN="+p.opts.Token,
		"BUILDKITE_AGENT_ENDPOINT="+p.opts.Endpoint,
		p.opts.Marker, p.marker,
	)
}

// process is a child whose end can be waited for by many.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// wait waits for the process's end, which its state tells of.
func (p *process) wait() {
	_ = p.cmd.Wait()
	close(p.done)
}
