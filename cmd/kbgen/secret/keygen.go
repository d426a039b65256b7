package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/templates"
)

// keygenCmd makes a node's key, or shows the public half of one.
type keygenCmd struct {
	Out      string `placeholder:"FILE" xor:"key" help:"the file for the private key"`
	Existing string `placeholder:"FILE" xor:"key" help:"make none: print the line of this key, private or public"`
	Name     string `default:"node" placeholder:"NAME" help:"the name of the key"`
	Kind     string `enum:"hybrid,x25519" default:"hybrid" placeholder:"KIND" help:"hybrid also withstands quantum computers, x25519 makes shorter texts; the two do not go together"`

	now func() time.Time
}

func (c *keygenCmd) Run(_ context.Context, env *cli.Env) error {
	day := c.now().UTC()
	switch {
	case c.Existing != "":
		return c.existing(env, day)
	case c.Out == "":
		return cli.Usagef("--out: got no file for the private key")
	}
	key, line, err := secrets.GenerateKey(secrets.Kind(c.Kind))
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	recipient := secrets.Recipient{Name: c.Name, Added: day, Key: key.Public}
	if _, err := secrets.ParseRecipients(recipient.String()); err != nil {
		return cli.Usagef("--name: %w", err)
	}
	text := fmt.Sprintf("# %s, made %s; its public key:\n# %s\n%s\n", c.Name, day.Format(time.DateOnly), recipient, line)
	if err := createKeyFile(c.Out, text); err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Stdout, recipient)
	return err
}

// existing prints the line of a key that is there, public or private.
func (c *keygenCmd) existing(env *cli.Env, day time.Time) error {
	text, err := readFile(env, c.Existing)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	key, err := secrets.ParsePublicKey(string(text))
	if private, notPrivate := secrets.ParsePrivateKeys(text); notPrivate == nil && private[0].Public != nil {
		key, err = private[0].Public, nil
	}
	if err != nil {
		return cli.Usagef("%s: %w", c.Existing, err)
	}
	recipient := secrets.Recipient{Name: c.Name, Added: day, Key: key}
	if _, err := secrets.ParseRecipients(recipient.String()); err != nil {
		return cli.Usagef("--name: %w", err)
	}
	_, err = fmt.Fprintln(env.Stdout, recipient)
	return err
}

// createKeyFile writes a key where there is nothing yet: nobody replaces the one
// key that opens what exists by a slip.
func createKeyFile(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return cli.Usagef("--out %s: got a file that is there, want a new one: what was sealed for the old key opens with nothing else", name)
	}
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(name)
		return fmt.Errorf("writing the key: %w", err)
	}
	return nil
}

// hookCmd prints an agent's hook for the old formats.
type hookCmd struct {
	Name    string   `arg:""`
	Allow   []string `placeholder:"UUID=REPOSITORY" sep:"none" help:"a pipeline and the repository it builds, as BUILDKITE_REPO has it; may be repeated"`
	Socket  string   `placeholder:"PATH" help:"the broker's socket; default /run/kbnode/secretd.sock"`
	NoToken bool     `name:"no-token" help:"the broker asks for no token"`
}

func (c *hookCmd) Run(_ context.Context, env *cli.Env) error {
	h := templates.SecretHook{Name: c.Name, Socket: c.Socket, NoToken: c.NoToken}
	for _, pair := range c.Allow {
		pipeline, repository, ok := strings.Cut(pair, "=")
		if !ok {
			return cli.Usagef("--allow: got %q, want UUID=REPOSITORY", pair)
		}
		h.Allow = append(h.Allow, templates.Allowed{Pipeline: pipeline, Repository: repository})
	}
	text, err := h.Render()
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	_, err = io.WriteString(env.Stdout, text)
	return err
}
