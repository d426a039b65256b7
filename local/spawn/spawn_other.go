//go:build !linux

package spawn

import (
	"os/exec"
	"syscall"
)

// startProcess starts cmd in a process group of its own.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go p.wait()
	return p, nil
}

// Kill needs /proc.
func Kill(string) {}
