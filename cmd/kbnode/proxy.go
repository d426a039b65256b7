package main

import (
	"cmp"
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

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/drain"
	"github.com/gpu-mode/kbgen/node/engine"
	"github.com/gpu-mode/kbgen/node/proxy"
	"github.com/gpu-mode/kbgen/node/system"
)

// slotFlags say which slot a command is for.
type slotFlags struct {
	Slot   string `required:"" placeholder:"NAME"`
	Engine string `placeholder:"PATH"`
	Root   string `default:"/" placeholder:"DIR"`
}

// config reads the config and the slot, whose engine is in Engine afterwards.
func (f *slotFlags) config() (*node.Config, *node.Slot, error) {
	config, err := node.ReadConfig(f.Root)
	if err != nil {
		return nil, nil, err
	}
	s, err := config.Slot(f.Slot)
	if err != nil {
		return nil, nil, err
	}
	f.Engine = cmp.Or(f.Engine, config.Docker.Socket)
	return config, s, nil
}

// proxyCmd is a slot's docker socket.
type proxyCmd struct {
	slotFlags
	Socket string `placeholder:"PATH"`
}

func (c *proxyCmd) Run(ctx context.Context, env *cli.Env) error {
	_, s, err := c.config()
	if err != nil {
		return err
	}
	if c.Engine == "" {
		return fmt.Errorf("slot %s: there is no docker engine in %s", s.Name, node.ConfigPath)
	}
	uid, gid, err := userOf(s)
	if err != nil {
		return err
	}
	logger := log.New(env.Stderr, "", 0) // the journal has the time
	p, err := proxy.New(proxy.Options{
		Slot: s, UID: uid, GID: gid, Engine: c.Engine, TempDir: filepath.Join(c.Root, s.TempDir()),
		Pins: func() (*node.Pins, error) { return node.ReadPins(c.Root) },
		Ended: func(ctx context.Context) error {
			if c.Root != "/" {
				return nil
			}
			return drain.CheckDevices(ctx, s)
		},
		Stuck: func(ctx context.Context, why error) {
			if c.Root != "/" {
				return
			}
			if err := drain.Retire(context.WithoutCancel(ctx), s, why); err != nil {
				logger.Print(err)
			}
		},
		Log: logger.Printf,
	})
	if err != nil {
		return err
	}
	l, err := c.listen(env)
	if err != nil {
		return err
	}
	return c.serve(ctx, l, p, logger)
}

// listen takes the socket that systemd made, or makes one for this user alone.
func (c *proxyCmd) listen(env *cli.Env) (net.Listener, error) {
	if c.Socket == "" {
		handed, err := activation.Listeners()
		if err != nil || len(handed) != 1 || handed[0] == nil {
			return nil, cli.Usagef("--socket: got none, and %d sockets from systemd, want one", len(handed))
		}
		return handed[0], nil
	}
	old := syscall.Umask(0o177)
	l, err := net.Listen("unix", c.Socket)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("--socket: %w", err)
	}
	return l, nil
}

// serve answers until ctx is done. The agent's preflight makes the check after the
// last container, where that is cut off.
func (c *proxyCmd) serve(ctx context.Context, l net.Listener, p *proxy.Proxy, logger *log.Logger) error {
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

// userOf is the slot's user and its group.
func userOf(s *node.Slot) (uid, gid int, err error) {
	u, err := system.LookupUser(s.User)
	if err != nil {
		return 0, 0, fmt.Errorf("slot %s: %w", s.Name, err)
	}
	return u.UID, u.GID, nil
}

// reapCmd removes what a slot's jobs left behind.
type reapCmd struct {
	slotFlags
	Timeout time.Duration `default:"2m" placeholder:"DURATION"`
}

func (c *reapCmd) Run(ctx context.Context, env *cli.Env) error {
	_, s, err := c.config()
	if err != nil {
		return err
	}
	var faults []error
	if c.Engine != "" {
		// The unit's stop waits for this, and an engine that hangs says nothing.
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		n, err := engine.New(c.Engine).Reap(ctx, s.Label())
		if err != nil {
			faults = append(faults, fmt.Errorf("slot %s: %w", s.Name, err))
		}
		if n > 0 {
			fmt.Fprintf(env.Stderr, "kbnode: slot %s: %d containers were left by its jobs\n", s.Name, n)
		}
	}
	return errors.Join(append(faults, c.jobs(s))...)
}

// jobs removes the directories of the slot's jobs. It never follows a link.
func (c *reapCmd) jobs(s *node.Slot) error {
	root, err := os.OpenRoot(filepath.Join(c.Root, s.TempDir()))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	faults := []error{err}
	for _, e := range entries {
		if e.IsDir() && proxy.IsJobDir(e.Name()) {
			faults = append(faults, root.RemoveAll(e.Name()))
		}
	}
	return errors.Join(faults...)
}
