package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/secrets"
)

// rekeyCmd seals a store's values for the recipients of today.
type rekeyCmd struct {
	Store      string   `arg:"" optional:"" default:".buildkite/secrets.kb.yaml"`
	Key        []string `required:"" placeholder:"FILE"`
	Recipients string   `default:".buildkite/kbgen/recipients.txt" placeholder:"FILE"`
	All        bool
	Sign       string `placeholder:"FILE"`

	now clock
}

func (c *rekeyCmd) Run(_ context.Context, env *cli.Env) error {
	keys, err := privateKeys(env, c.Key)
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
	done, err := c.rekey(env, store, keys, sealer)
	if err != nil {
		return err
	}
	if done == 0 {
		fmt.Fprintf(env.Stderr, "kbgen-secret: %s: all of %d are sealed for %s already\n", c.Store, len(store.Entries), sealer.template.KeyID)
		return nil
	}
	if err := writeStore(c.Store, store); err != nil {
		return err
	}
	fmt.Fprintf(env.Stderr, "kbgen-secret: %s: %d of %d sealed for %s; whoever could read the old text still can: replace values that a lost key has opened\n",
		c.Store, done, len(store.Entries), sealer.template.KeyID)
	return nil
}

// rekey changes the store only in memory: with one value that does not open, the
// file stays as it is.
func (c *rekeyCmd) rekey(env *cli.Env, store *secrets.Store, keys []*secrets.PrivateKey, to *sealer) (done int, err error) {
	var faults []error
	for _, e := range store.Entries {
		secret, err := secrets.Open(e.Envelope, secrets.Identities(keys))
		if err == nil && secret.Name != e.Name {
			err = &secrets.Refusal{Reason: secrets.Renamed, Detail: "it was sealed as " + secret.Name}
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %s: %w", c.Store, e.Line, e.Name, err))
			continue
		}
		if secret.KeyID == to.template.KeyID && !c.All {
			continue
		}
		if secret.Signature != nil && to.sign == nil {
			fmt.Fprintf(env.Stderr, "kbgen-secret: note: %s loses its signature; --sign makes a new one\n", e.Name)
		}
		secret, text, err := to.reseal(secret)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", c.Store, e.Line, err))
			continue
		}
		store.Set(secret, text)
		done++
	}
	return done, errors.Join(faults...)
}
