package secret

import (
	"context"
	"fmt"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

// rekeyCmd seals a store's values for the recipients of today.
type rekeyCmd struct {
	Store      string   `arg:"" optional:"" default:".buildkite/secrets.kb.yaml"`
	Key        []string `required:"" placeholder:"FILE" help:"a private key that opens the values; may be repeated"`
	Recipients string   `default:".buildkite/kbgen/recipients.txt" placeholder:"FILE" help:"the file of keys to seal for"`
	All        bool     `help:"also seal anew what is sealed for these recipients already"`
	Sign       string   `placeholder:"FILE" help:"sign the values anew; a signature is lost otherwise"`

	now clock
}

func (c *rekeyCmd) Run(_ context.Context, env *cli.Env) error {
	keys, err := readKeys(env, c.Key, "")
	if err != nil {
		return err
	}
	sealer, err := sealingFlags{Recipients: c.Recipients, Sign: c.Sign}.sealer(env, c.now())
	if err != nil {
		return err
	}
	store, err := readStore(env, c.Store, false)
	if err != nil {
		return err
	}
	done, unsigned, err := keys.Rekey(store, c.Store, sealer, c.All)
	for _, name := range unsigned {
		fmt.Fprintf(env.Stderr, "kbgen: note: %s loses its signature; --sign makes a new one\n", name)
	}
	if err != nil {
		return err
	}
	if done == 0 {
		fmt.Fprintf(env.Stderr, "kbgen: %s: all of %d are sealed for %s already\n", c.Store, len(store.Entries), sealer.Template.KeyID)
		return nil
	}
	if err := writeStore(c.Store, store); err != nil {
		return err
	}
	fmt.Fprintf(env.Stderr, "kbgen: %s: %d of %d sealed for %s; whoever could read the old text still can: replace values that a lost key has opened\n",
		c.Store, done, len(store.Entries), sealer.Template.KeyID)
	return nil
}
