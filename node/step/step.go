// Package step runs a job that the gate has admitted: in a container, which it asks
// the slot's proxy for, or on a slot without containers as a process. It takes the
// place of the agent's own bootstrap and of the docker plugin, so that no shell on
// the machine reads the data of a container's job. The container is the one that the
// docker plugin v5.13.0 would make from the settings that the gate admits.
//
// On a slot with containers the only programs that it starts are the agent's, to ask
// for a token and to upload artifacts.
package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/audit"
	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/node/docker"
	"github.com/gpu-mode/kbgen/node/gate"
	"github.com/gpu-mode/kbgen/node/proxy"
	"github.com/gpu-mode/kbgen/runner/agent"
	"github.com/gpu-mode/kbgen/schema/text"
)

// stopTime is how long a cancelled container may take to end by itself. It leaves time
// for the upload before the agent kills this process, ten seconds after the
// cancellation (cancel-grace-period).
const stopTime = 6 * time.Second

// uploadTime bounds the upload of a job's artifacts.
const uploadTime = 10 * time.Minute

// A Runner runs jobs of one slot.
type Runner struct {
	Config  *node.Config
	Slot    *node.Slot
	Root    string    // the slot's paths lie below it; "/" but in tests
	Environ []string  // what the agent gave this process
	Log     io.Writer // the job's log
	// Report is told when a job without a container begins, and when it has ended.
	Report func(audit.Record) error
}

// Run runs a job to its end, removes what it left, and returns its exit status. When
// ctx ends the job is cancelled: its processes get SIGTERM, and a container is killed
// after [stopTime].
//
// Errors: [*gate.Refusal]; [*gate.UnfitError] if the machine could not run the job to
// its end; an upload that failed.
func (r *Runner) Run(ctx context.Context, j *gate.Job) (status int, err error) {
	temp := filepath.Join(r.Root, r.Slot.TempDir())
	clean := func() error { return proxy.RemoveJobs(temp) }
	if j.Container != nil { // its files are another user's, which only the proxy can remove
		clean = func() error {
			return r.engine().Do(context.WithoutCancel(ctx), http.MethodPost, proxy.Clean, nil, nil, nil)
		}
	}
	dir, err := directory(temp, clean)
	if err != nil {
		return 0, &gate.UnfitError{Slot: r.Slot.Name, Err: err}
	}
	defer func() {
		if left := clean(); left != nil {
			fmt.Fprintf(r.Log, "kbnode: the job's directory: %v\n", left)
		}
	}()
	if j.Container == nil {
		status, err = r.process(ctx, j, dir)
	} else {
		status, err = r.container(ctx, j, dir)
	}
	switch {
	case docker.Is(err, http.StatusForbidden): // the proxy takes less than the gate
		return 0, &gate.Refusal{Err: err}
	case err != nil:
		return 0, &gate.UnfitError{Slot: r.Slot.Name, Err: err}
	}
	return status, r.upload(ctx, j, dir)
}

// directory removes what earlier jobs left, and creates the job's directory. The job's
// user can write to it because it is in the directory's group.
func directory(temp string, clean func() error) (string, error) {
	if err := clean(); err != nil {
		return "", fmt.Errorf("removing what the last job left: %w", err)
	}
	dir, err := os.MkdirTemp(temp, proxy.JobDirPrefix)
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o770)
}

// engine is docker's, behind the slot's proxy.
func (r *Runner) engine() *docker.Client {
	return docker.New(filepath.Join(r.Root, r.Slot.ProxySocket()))
}

// process runs the job's command, one of the slot's own, as the agent would. The
// process stays in this process group, which the agent signals as a whole.
func (r *Runner) process(ctx context.Context, j *gate.Job, dir string) (int, error) {
	fmt.Fprintln(r.Log, "~~~ Running commands")
	cmd := exec.Command("/bin/bash", "-e", "-c", j.Command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, r.Log, r.Log
	cmd.Env = append(gate.Environ(r.Config, r.Slot, r.Root, r.Environ, j.Variables), "PWD="+dir)
	record := audit.Record{Slot: r.Slot.Name, Job: j.ID, Pipeline: j.Variables["BUILDKITE_PIPELINE_SLUG"], Build: j.Variables["BUILDKITE_BUILD_NUMBER"], Step: j.Variables["BUILDKITE_STEP_KEY"]}
	r.report(record)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer ended()
	status, err := exitStatus(cmd.Wait())
	record.Ended, record.Status = time.Now(), status
	r.report(record)
	return status, err
}

// report sends a job's record to Report. If the journal does not answer, the job still
// runs.
func (r *Runner) report(record audit.Record) {
	if err := r.Report(record); err != nil {
		fmt.Fprintf(r.Log, "kbnode: the job's record: %v\n", err)
	}
}

// exitStatus is the exit status of a process, as a shell has it, from what Wait returned.
func exitStatus(err error) (int, error) {
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		if ws, _ := exited.Sys().(syscall.WaitStatus); ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return exited.ExitCode(), nil
	}
	return 0, err
}

// upload uploads the job's artifacts that exist. No process of a container is left to
// change them.
func (r *Runner) upload(ctx context.Context, j *gate.Job, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var there []string
	for _, name := range j.Artifacts {
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New("not a regular file: a link could expose another file")
		}
		if err != nil {
			return fmt.Errorf("artifact %s: %w", text.Quote(name), err)
		}
		there = append(there, name)
	}
	if len(there) == 0 {
		return nil
	}
	fmt.Fprintln(r.Log, "~~~ Uploading artifacts")
	if j.Container != nil { // whose user may have kept them to itself
		if err := r.engine().Do(context.WithoutCancel(ctx), http.MethodPost, proxy.Share, nil, nil, nil); err != nil {
			return err
		}
	}
	return r.agent().Call(context.WithoutCancel(ctx), uploadTime, dir, "", "artifact", "upload", strings.Join(there, ";"))
}

// agent is the slot's, which speaks for the job.
func (r *Runner) agent() agent.Agent {
	return agent.Agent{Path: r.Config.Agent.Path, Environ: gate.Environ(r.Config, r.Slot, r.Root, r.Environ, nil)}
}

// Token asks for a token that proves to the broker which job this is.
func (r *Runner) Token(ctx context.Context) (string, error) {
	return r.agent().Token(ctx, gate.UnsealLimit, client.Audience, client.TokenClaims()...)
}
