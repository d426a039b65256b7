package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/node/limits"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets/refused"
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

// Admit returns the job whose variables are in a file, if it may run and the slot is
// fit for one.
//
// Errors: [*Refusal], after which the job is not tried again; [*UnfitError].
func Admit(root string, config *node.Config, s *node.Slot, file string) (*Job, error) {
	variables, err := jobVariables(file)
	if err != nil {
		return nil, err
	}
	job, err := Decide(config, s.Name, variables)
	if err != nil {
		return nil, &Refusal{err}
	}
	if err := limits.Check(os.DirFS(root), s); err != nil {
		return nil, &UnfitError{s.Name, err}
	}
	return job, nil
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

// UnsealLimit bounds each of the two calls that open a payload.
const UnsealLimit = 30 * time.Second

// carrierNames are the commands for which a payload is opened, with the names of the
// variables that carry it: what pipeline evaluate runs, letter for letter. Any other
// command could print what it is given.
var carrierNames = map[string]func(string) string{
	"exec kbrun evaluate": func(name string) string { return name },
	"exec kbrun evaluate --secret": func(name string) string {
		if !strings.HasPrefix(name, schema.EnvPrefix) {
			return "" // older names have no second run
		}
		return schema.SecretEnv(name)
	},
}

// A TokenSource asks the agent for a token of the job.
type TokenSource func(context.Context) (string, error)

// Unseal opens a sealed payload in the variables of the job. The job's container can
// reach neither a broker nor the agent that proves who it is; this process can reach
// both, and runs nothing of a submission. A refusal of the broker takes the payload's
// place, so that kbrun writes it into the result. After any other error the payload
// stays sealed: kbrun then says that this machine opens none, and the job is tried on
// another.
func (j *Job) Unseal(ctx context.Context, socket string, token TokenSource) error {
	name := carrierNames[j.Command]
	if name == nil {
		return nil
	}
	lookup := func(carrier string) (string, bool) {
		value, ok := j.Variables[name(carrier)]
		return value, ok
	}
	sealed, err := schema.FindPayload(lookup)
	if err != nil || !strings.HasPrefix(sealed, schema.SealedPrefix) {
		return nil // kbrun says what is wrong with it
	}
	run, _ := lookup(schema.EnvRunID)
	text, err := open(ctx, socket, token, sealed, run)
	if err != nil {
		return err
	}
	carriers, err := schema.ReplacePayload(lookup, text)
	for carrier, value := range carriers {
		if _, sent := lookup(carrier); sent {
			j.Variables[name(carrier)] = value
		}
	}
	return err
}

// open asks the broker. A refusal is an answer.
//
// Errors: [os.ErrNotExist] without a broker; [client.ErrNoBroker]; no token.
func open(ctx context.Context, socket string, token TokenSource, sealed, run string) (string, error) {
	if _, err := os.Stat(socket); err != nil {
		return "", fmt.Errorf("this node has no broker: %w", err)
	}
	proof, err := token(ctx)
	if err != nil {
		return "", err
	}
	ask, stop := context.WithTimeout(ctx, UnsealLimit)
	defer stop()
	value, err := client.Get(ask, socket, client.Request{Name: schema.SealedPayloadName, Run: run, Envelope: sealed, Token: proof})
	if why, ok := errors.AsType[*refused.Refusal](err); ok {
		return schema.RefusedPrefix + string(why.Reason) + ":" + why.Detail, nil
	}
	return schema.OpenedPrefix + string(value), err
}
