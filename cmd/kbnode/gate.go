package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/node/gate"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// The variables that units and the agent tell these commands by.
const (
	slotVariable = "KBNODE_SLOT"
	jobVariable  = "BUILDKITE_ENV_JSON_FILE"
)

// gateCmd decides about a job, in the hook pre-bootstrap.
type gateCmd struct {
	Root string `default:"/" placeholder:"DIR"`
}

func (c *gateCmd) Run(_ context.Context, env *cli.Env) error {
	config, s, err := ownSlot(env, c.Root)
	if err != nil {
		return err
	}
	err = admit(env, c.Root, config, s)
	if err != nil && bootsHere(c.Root, config, s) {
		// The job's log shows what its bootstrap says, and nothing of a hook's.
		fmt.Fprintf(env.Stderr, "kbnode: left to kbnode bootstrap: %v\n", err)
		return nil
	}
	return err
}

// admit decides about the job, and whether the slot is fit for one. A job that is
// refused is not tried again; one that came to a slot that is not fit may be.
func admit(env *cli.Env, root string, config *node.Config, s *node.Slot) error {
	job, err := jobVariables(env.Getenv(jobVariable))
	if err != nil {
		return err
	}
	if err := gate.Decide(config, s.Name, job); err != nil {
		return &cli.ExitError{Status: schema.ExitConfig, Err: fmt.Errorf("this job is refused: %w", err)}
	}
	if err := gate.Limits(os.DirFS(root), s); err != nil {
		return &cli.ExitError{Status: schema.ExitTempFail, Err: fmt.Errorf("slot %s is not fit for a job: %w", s.Name, err)}
	}
	return nil
}

// bootsHere reports whether the agent is configured to start this program as a
// job's bootstrap, which refuses what the hook would.
func bootsHere(root string, config *node.Config, s *node.Slot) bool {
	raw, err := os.ReadFile(filepath.Join(root, s.AgentConfig()))
	return err == nil && strings.Contains("\n"+string(raw), "\nbootstrap-script=\""+config.Program+" bootstrap")
}

// ownSlot is the slot whose user this process runs as, and which the unit names.
func ownSlot(env *cli.Env, root string) (*node.Config, *node.Slot, error) {
	config, err := node.ReadConfig(root)
	if err != nil {
		return nil, nil, err
	}
	s, err := config.Slot(env.Getenv(slotVariable))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", slotVariable, err)
	}
	uid, _, err := userOf(s)
	if err != nil {
		return nil, nil, err
	}
	if got := os.Geteuid(); got != uid {
		return nil, nil, fmt.Errorf("%s: got %s of user %d (%s), want the slot of this user, %d", slotVariable, s.Name, uid, s.User, got)
	}
	return config, s, nil
}

// maxVariables bounds the file of a job's variables: the kernel takes 2 MiB of them.
const maxVariables = 8 << 20

// jobVariables reads what Buildkite sent for the job.
func jobVariables(file string) (map[string]string, error) {
	if file == "" {
		return nil, fmt.Errorf("%s: got none: this is for the agent's hook pre-bootstrap", jobVariable)
	}
	raw, err := cli.ReadInput(nil, file, maxVariables)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", jobVariable, err)
	}
	var all map[string]string
	if err := json.Unmarshal(raw, &all); err != nil || len(all) == 0 {
		return nil, errors.New(jobVariable + ": got no JSON object of strings")
	}
	return all, nil
}

// bootstrapCmd becomes the agent's bootstrap.
type bootstrapCmd struct {
	Root string `default:"/" placeholder:"DIR"`
}

func (c *bootstrapCmd) Run(ctx context.Context, env *cli.Env) error {
	config, s, err := ownSlot(env, c.Root)
	if err != nil {
		return err
	}
	if err := admit(env, c.Root, config, s); err != nil {
		return err
	}
	if err := gate.OfferPlugin(s, c.Root, env.Getenv("BUILDKITE_AGENT_NAME")); err != nil {
		return &cli.ExitError{Status: schema.ExitTempFail, Err: fmt.Errorf("slot %s is not fit for a job: the docker plugin: %w", s.Name, err)}
	}
	environ := gate.Environ(config, s, c.Root, env.Environ())
	if s.Platform == plan.Docker {
		environ = unsealed(ctx, env, config, filepath.Join(c.Root, client.Socket), environ)
	}
	if err := ctx.Err(); err != nil { // cancelled: the agent's bootstrap would not hear of it
		return err
	}
	err = syscall.Exec(config.Agent.Path, []string{config.Agent.Path, "bootstrap", "--no-job-api"}, environ)
	return fmt.Errorf("starting %s: %w", config.Agent.Path, err)
}
