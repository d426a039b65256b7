package proxy

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/docker"
)

// Listen takes the socket that systemd made, or makes one for this user alone.
func Listen(socket string) (net.Listener, error) {
	if socket == "" {
		handed, err := activation.Listeners()
		if err != nil || len(handed) != 1 || handed[0] == nil {
			return nil, node.Usagef("--socket: got none, and %d sockets from systemd, want one", len(handed))
		}
		return handed[0], nil
	}
	mask := syscall.Umask(0o177)
	l, err := net.Listen("unix", socket)
	syscall.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("--socket: %w", err)
	}
	return l, nil
}

// Serve answers until ctx is done. The agent's preflight makes the check after the
// last container, where that is cut off.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, logger *log.Logger) error {
	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: logger}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }() // ends with Close
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	return server.Close() // the agent's unit stops first, and leaves nothing to wait for
}

// Reap removes what a slot's jobs left behind: containers, for which the engine is
// asked at a unix socket unless that is "", and directories below root. It returns
// how many containers there were.
func Reap(ctx context.Context, s *node.Slot, socket, root string) (n int, err error) {
	if socket != "" {
		if n, err = docker.New(socket).Reap(ctx, s.Label()); err != nil {
			err = fmt.Errorf("slot %s: %w", s.Name, err)
		}
	}
	return n, errors.Join(err, removeJobs(filepath.Join(root, s.TempDir())))
}

// removeJobs removes the directories of jobs. It never follows a link.
func removeJobs(dir string) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	all, err := root.Open(".")
	if err != nil {
		return err
	}
	defer all.Close()
	entries, err := all.ReadDir(-1)
	faults := []error{err}
	for _, e := range entries {
		if e.IsDir() && jobDir.MatchString(e.Name()) {
			faults = append(faults, root.RemoveAll(e.Name()))
		}
	}
	return errors.Join(faults...)
}
