package session

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/gpu-mode/kbgen/local/spawn"
)

// Watch is the process that outlives a kblocal which was killed: an agent
// without its server would try to report for minutes. It waits until alive, its
// standard input, ends, which it does with kblocal, kills what carries the marker,
// and removes what lies in the way of nobody but holds payloads.
func Watch(alive io.Reader, marker string, remove []string) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // for kblocal, which cleans up
	_, err := io.Copy(io.Discard, alive)
	spawn.Kill(marker)
	for _, dir := range remove {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// A watch is a running [Watch], which kblocal watch is.
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
