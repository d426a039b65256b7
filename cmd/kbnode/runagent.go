package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
)

// runAgentCmd becomes a slot's agent where systemd is older than 253 and cannot
// open the token for it.
type runAgentCmd struct {
	Slot string `required:"" placeholder:"NAME"`
}

func (c *runAgentCmd) Run(_ context.Context, env *cli.Env) error {
	config, err := node.ReadConfig("/")
	if err != nil {
		return err
	}
	slot, err := config.Slot(c.Slot)
	if err != nil {
		return err
	}
	token, err := openToken(env.Getenv("CREDENTIALS_DIRECTORY"))
	if err != nil {
		return err
	}
	argv := agentArgs(config, slot, token)
	return fmt.Errorf("%s: %w", argv[0], syscall.Exec(argv[0], argv, env.Environ()))
}

// openToken opens the credential, which outlives an exec. A descriptor shows
// nothing of the token in a process listing, and no job inherits it.
func openToken(credentials string) (fd int, err error) {
	if credentials == "" {
		return 0, fmt.Errorf("no CREDENTIALS_DIRECTORY: want to be started by kbnode-agent@.service, whose LoadCredential= sets it")
	}
	path := filepath.Join(credentials, "token")
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// agentArgs is the agent's command line.
func agentArgs(config *node.Config, slot *node.Slot, token int) []string {
	return []string{config.Agent.Path, "start", "--config", slot.AgentConfig(), "--token", fmt.Sprintf("fd://%d", token)}
}
