package gate

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpu-mode/kbgen/node"
	"golang.org/x/sys/unix"
)

// AgentCommand returns the command line of a slot's agent where systemd is older than
// 253 and cannot open the token for it. It opens the token below credentials, the
// directory of LoadCredential=.
func AgentCommand(config *node.Config, slot *node.Slot, credentials string) ([]string, error) {
	token, err := openToken(credentials)
	if err != nil {
		return nil, err
	}
	return agentArgs(config, slot, token), nil
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
