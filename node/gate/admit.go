package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/limits"
	"github.com/gpu-mode/kbgen/node/system"
)

// The variables that a slot's unit and the agent set for kbnode.
const (
	SlotVariable = "KBNODE_SLOT"
	JobVariable  = "BUILDKITE_ENV_JSON_FILE"
)

// A Refusal says why a job may not run on a slot.
type Refusal struct{ Err error }

func (r *Refusal) Error() string { return "this job is refused: " + r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }

// An UnfitError says why a slot can run no job now. Another slot may.
type UnfitError struct {
	Slot string
	Err  error
}

func (e *UnfitError) Error() string {
	return "slot " + e.Slot + " is not fit for a job: " + e.Err.Error()
}
func (e *UnfitError) Unwrap() error { return e.Err }

// Admit decides about the job whose variables are in a file, and whether the slot is
// fit for one.
//
// Errors: [*Refusal], after which the job is not tried again; [*UnfitError].
func Admit(root string, config *node.Config, s *node.Slot, file string) error {
	job, err := jobVariables(file)
	if err != nil {
		return err
	}
	if err := Decide(config, s.Name, job); err != nil {
		return &Refusal{err}
	}
	if err := limits.Check(os.DirFS(root), s); err != nil {
		return &UnfitError{s.Name, err}
	}
	return nil
}

// BootsHere reports whether the agent is configured to start this program as a
// job's bootstrap, which refuses what the hook would.
func BootsHere(root string, config *node.Config, s *node.Slot) bool {
	raw, err := os.ReadFile(filepath.Join(root, s.AgentConfig()))
	return err == nil && strings.Contains("\n"+string(raw), "\nbootstrap-script=\""+config.Program+" bootstrap")
}

// OwnSlot returns the slot of a name, whose user this process must run as.
func OwnSlot(root, name string) (*node.Config, *node.Slot, error) {
	config, err := node.ReadConfig(root)
	if err != nil {
		return nil, nil, err
	}
	s, err := config.Slot(name)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", SlotVariable, err)
	}
	u, err := system.LookupUser(s.User)
	if err != nil {
		return nil, nil, fmt.Errorf("slot %s: %w", s.Name, err)
	}
	if got := os.Geteuid(); got != u.UID {
		return nil, nil, fmt.Errorf("%s: got %s of user %d (%s), want the slot of this user, %d", SlotVariable, s.Name, u.UID, s.User, got)
	}
	return config, s, nil
}

// maxVariables bounds the file of a job's variables: the kernel takes 2 MiB of them.
const maxVariables = 8 << 20

// JobVariables reads what Buildkite sent for the job.
func jobVariables(file string) (map[string]string, error) {
	if file == "" {
		return nil, fmt.Errorf("%s: got none: this is for the agent's hook pre-bootstrap", JobVariable)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", JobVariable, err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxVariables+1))
	if err == nil && len(raw) > maxVariables {
		err = fmt.Errorf("%s: more than %d bytes", file, maxVariables)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", JobVariable, err)
	}
	var all map[string]string
	if err := json.Unmarshal(raw, &all); err != nil || len(all) == 0 {
		return nil, errors.New(JobVariable + ": got no JSON object of strings")
	}
	return all, nil
}

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
