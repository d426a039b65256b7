package secret

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/runner/agent"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/inventory"
)

// Limits of one call.
const (
	agentLimit  = 60 * time.Second
	brokerLimit = 60 * time.Second
	chunkSize   = 16 << 10 // bytes of one call of the agent's redactor
)

// getCmd asks the node's broker for a secret, in a step.
type getCmd struct {
	Name     string   `arg:""`
	Command  []string `arg:"" optional:""`
	Store    string   `default:".buildkite/secrets.kb.yaml" placeholder:"FILE" help:"the store of sealed values"`
	Socket   string   `var:"KERNELBOT_BROKER" default:"/run/kbnode/secretd.sock" placeholder:"PATH" help:"the broker's socket"`
	Audience string   `default:"kbnode" placeholder:"TEXT" help:"the audience of the token"`
	FD       int      `name:"fd" default:"1" placeholder:"N" help:"the file descriptor to write the value to"`
	Old      bool     `help:"take the text from SECRET_NAME, in an old format"`
	NoToken  bool     `name:"no-token" help:"for nodes whose broker asks for no token"`
	NoRedact bool     `name:"no-redaction" help:"do not tell the agent which texts to redact"`
}

func (c *getCmd) Run(ctx context.Context, env *cli.Env) error {
	if err := secrets.CheckName(c.Name); err != nil {
		return &cli.UsageError{Err: err}
	}
	envelope, err := c.envelope(env)
	if err != nil {
		return err
	}
	a, err := jobAgent(env)
	if err != nil && !(c.NoToken && c.NoRedact) {
		return err
	}
	request := client.Request{Name: c.Name, Envelope: envelope, Old: c.Old}
	if !c.NoToken {
		if request.Token, err = a.Token(ctx, agentLimit, c.Audience, client.TokenClaims()...); err != nil {
			return err
		}
	}
	ask, stop := context.WithTimeout(ctx, brokerLimit)
	defer stop()
	value, err := client.Get(ask, c.Socket, request)
	if errors.Is(err, client.ErrNoBroker) {
		err = cli.WithHint(err, "the step must run on a node with kbnode secretd, and its user be in the socket's group")
	}
	if err != nil {
		return err
	}
	if !c.NoRedact { // before anybody has the value
		if err := redact(ctx, a, c.Name, value); err != nil {
			return err
		}
	}
	if len(c.Command) > 0 {
		return c.give(ctx, env, value)
	}
	out := env.Stdout
	if c.FD != 1 {
		f := os.NewFile(uintptr(c.FD), "fd")
		if f == nil {
			return cli.Usagef("--fd: got %d, want an open descriptor", c.FD)
		}
		defer f.Close()
		out = f
	}
	if _, err := out.Write(value); err != nil {
		return fmt.Errorf("writing the value: %w", err)
	}
	return nil
}

// envelope is the step's variable, else the repository's store.
func (c *getCmd) envelope(env *cli.Env) (string, error) {
	if c.Old {
		text := env.Getenv(inventory.LegacyPrefix + c.Name)
		if text == "" {
			return "", cli.Usagef("%s: got no variable %s%s", c.Name, inventory.LegacyPrefix, c.Name)
		}
		return text, nil
	}
	if text := env.Getenv(c.Name + secrets.Suffix); text != "" {
		return text, nil
	}
	store, err := readStore(env, c.Store, false)
	if errors.Is(err, fs.ErrNotExist) {
		return "", cli.Usagef("%s: got neither the variable %s%s nor a store %s", c.Name, c.Name, secrets.Suffix, c.Store)
	}
	if err != nil {
		return "", err
	}
	e, ok := store.Lookup(c.Name)
	if !ok {
		return "", cli.Usagef("%s: %s has %s", c.Name, c.Store, names(store))
	}
	return e.Envelope, nil
}

func jobAgent(env *cli.Env) (agent.Agent, error) {
	if name := agent.Missing(env.Getenv); name != "" {
		return agent.Agent{}, cli.WithHint(cli.Usagef("got no %s: get runs in a job", name), "with the private key: kbgen secret decrypt")
	}
	path, err := agent.Find(env.Getenv)
	return agent.Agent{Path: path, Environ: env.Environ()}, err
}

// redact tells the agent what must not stand in the log: in no argument, and
// before the value is anywhere else.
func redact(ctx context.Context, a agent.Agent, name string, value []byte) error {
	for _, chunk := range secrets.RedactorChunks(name, value, chunkSize) {
		if err := a.Call(ctx, agentLimit, "", string(chunk), "redactor", "add", "--format", "json"); err != nil {
			return cli.WithHint(fmt.Errorf("keeping %s out of the log: %w", name, err), "a node that switches the job's API off has no redactor; --no-redaction goes without")
		}
	}
	return nil
}

// give runs one command with the value in a file in memory.
func (c *getCmd) give(ctx context.Context, env *cli.Env, value []byte) error {
	f, err := memoryFile(value)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, c.Command[0], c.Command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr = env.Stdin, env.Stdout, env.Stderr
	cmd.Env = append(env.Environ(), c.Name+"_FILE="+f.Name())
	err = cmd.Run()
	if exited, ok := errors.AsType[*exec.ExitError](err); ok && exited.Exited() {
		return &cli.ExitError{Status: exited.ExitCode()}
	}
	return err
}
