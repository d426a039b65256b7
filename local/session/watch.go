package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/local/spawn"
)

// watchCmd is the process that outlives a kblocal which was killed: an agent
// without its server would try to report for minutes. It waits until its
// standard input ends, which it does with kblocal, kills what carries the marker,
// and removes what lies in the way of nobody but holds payloads.
type watchCmd struct {
	Marker string   `arg:""`
	Remove []string `arg:"" optional:""`
}

func (c *watchCmd) Run(_ context.Context, env *cli.Env) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // for kblocal, which cleans up
	_, err := io.Copy(io.Discard, env.Stdin)
	spawn.Kill(c.Marker)
	for _, dir := range c.Remove {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// A watch is a running watchCmd.
type watch struct {
	cmd   *exec.Cmd
	alive io.Closer // its standard input
}

func startWatch(marker string, remove []string) (*watch, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{"watch", marker}, remove...)...)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &watch{cmd: cmd, alive: alive}, cmd.Start()
}

// stop ends the watch; whatever is left of the agents ends with it.
func (w *watch) stop() error {
	if err := w.alive.Close(); err != nil {
		return err
	}
	return w.cmd.Wait()
}
