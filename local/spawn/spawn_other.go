//go:build !linux

package spawn

import (
	"io"
	"os/exec"
	"syscall"
)

// startProcess starts cmd in a process group of its own.
func startProcess(cmd *exec.Cmd, closer io.Closer) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, pid: cmd.Process.Pid, done: make(chan struct{})}
	go p.closeAfter(closer)
	return p, nil
}

// killTree kills the process group; without /proc that is all there is.
func killTree(root int) { _ = syscall.Kill(-root, syscall.SIGKILL) }

// killMarked needs /proc.
func killMarked(string) {}
