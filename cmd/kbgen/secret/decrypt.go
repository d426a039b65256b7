package secret

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/inventory"
	"github.com/gpu-mode/kbgen/secrets/refused"
)

// decryptCmd opens one value with a private key and prints it, byte for byte.
type decryptCmd struct {
	File          string   `arg:"" optional:"" default:"-"`
	Key           []string `required:"" placeholder:"FILE" help:"a private key, lines AGE-SECRET-KEY-… or RSA in PEM for old formats; may be repeated"`
	Name          string   `placeholder:"NAME" help:"which value of a store; another text must have this name"`
	RepositoryKey string   `name:"repository-key" placeholder:"FILE" help:"cryptic's repo_key.…, for its variables"`

	now func() time.Time
}

func (c *decryptCmd) Run(_ context.Context, env *cli.Env) error {
	keys, err := readKeys(env, c.Key, c.RepositoryKey)
	if err != nil {
		return err
	}
	sealed, err := c.sealed(env)
	if err != nil {
		return err
	}
	var value []byte
	if secrets.IsEnvelope(sealed) {
		value, err = c.open(env, keys, sealed)
	} else {
		value, err = c.openLegacy(env, keys, sealed)
	}
	if err != nil {
		return err
	}
	_, err = env.Stdout.Write(value)
	return err
}

// sealed is the text to open: of a store's entry, or all that a file holds.
func (c *decryptCmd) sealed(env *cli.Env) (string, error) {
	if inventory.IsStore(c.File) {
		if c.Name == "" {
			return "", cli.Usagef("--name: got none, want which secret of %s", c.File)
		}
		store, err := readStore(env, c.File, false)
		if err != nil {
			return "", err
		}
		e, ok := store.Lookup(c.Name)
		if !ok {
			return "", cli.Usagef("--name: got %s, have %s", text.Quote(c.Name), names(store))
		}
		return e.Envelope, nil
	}
	b, err := readFile(env, c.File)
	if err != nil {
		return "", &cli.UsageError{Err: err}
	}
	return strings.TrimSpace(string(b)), nil
}

func names(s *secrets.Store) string {
	var all []string
	for _, e := range s.Entries {
		all = append(all, e.Name)
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}

// open says on stderr what a value is bound to. Who holds the key may read it
// whatever it is bound to; a node's broker hands it to nobody then.
func (c *decryptCmd) open(env *cli.Env, keys inventory.Keys, sealed string) ([]byte, error) {
	s, err := secrets.Open(sealed, secrets.Identities(keys.Private))
	if err != nil {
		return nil, err
	}
	if c.Name != "" && s.Name != c.Name {
		return nil, &refused.Refusal{Name: c.Name, Reason: refused.Renamed, Detail: "it was sealed as " + s.Name}
	}
	by, expired := "", ""
	if s.By != "" {
		by = " by " + s.By
	}
	if !c.now().Before(s.Expires) {
		expired = " (expired)"
	}
	fmt.Fprintf(env.Stderr, "kbgen: %s: sealed for %s%s, organization %s, pipelines %s, ends %s%s\n", s.Name, s.KeyID, by,
		s.Organization, strings.Join(s.Pipelines, ", "), s.Expires.Format(time.DateOnly), expired)
	return s.Value, nil
}

func (c *decryptCmd) openLegacy(env *cli.Env, keys inventory.Keys, sealed string) ([]byte, error) {
	v, err := keys.OpenLegacy(sealed)
	if err != nil {
		return nil, usage(err)
	}
	fmt.Fprintf(env.Stderr, "kbgen: format %s%s; bound to nothing. kbgen secret migrate makes kbsec1 of it\n", v.Format, inventory.Weakness(v))
	return v.Text, nil
}

// usage makes wrong usage of errors that another command line mends.
func usage(err error) error {
	if errors.Is(err, inventory.ErrFormat) || errors.Is(err, inventory.ErrRepositoryKey) {
		return &cli.UsageError{Err: err}
	}
	return err
}

// rekeyCmd seals a store's values for the recipients of today.
type rekeyCmd struct {
	Store      string   `arg:"" optional:"" default:".buildkite/secrets.kb.yaml"`
	Key        []string `required:"" placeholder:"FILE" help:"a private key that opens the values; may be repeated"`
	Recipients string   `default:".buildkite/kbgen/recipients.txt" placeholder:"FILE" help:"the file of keys to seal for"`
	All        bool     `help:"also seal anew what is sealed for these recipients already"`
	Sign       string   `placeholder:"FILE" help:"sign the values anew; a signature is lost otherwise"`

	now func() time.Time
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

// migrateCmd makes a store of the values that pipelines hold in the old formats.
type migrateCmd struct {
	Files         []string `arg:"" name:"file"`
	Key           []string `required:"" placeholder:"FILE" help:"a private key, lines AGE-SECRET-KEY-… or RSA in PEM for old formats; may be repeated"`
	RepositoryKey string   `name:"repository-key" placeholder:"FILE" help:"cryptic's repo_key.…, for its variables"`
	Store         string   `default:".buildkite/secrets.kb.yaml" placeholder:"FILE" help:"the store to put the values into"`
	bindingFlags
	sealingFlags

	now func() time.Time
}

func (c *migrateCmd) Run(_ context.Context, env *cli.Env) error {
	keys, err := readKeys(env, c.Key, c.RepositoryKey)
	if err != nil {
		return err
	}
	sealer, err := c.sealer(env, c.now())
	if err != nil {
		return err
	}
	store, err := readStore(env, c.Store, true)
	if err != nil {
		return err
	}
	var values []inventory.Value
	for _, file := range c.Files {
		found, err := scan(env, file)
		if err != nil {
			return err
		}
		values = append(values, found...)
	}
	report, err := keys.Migrate(values, sealer, c.binding(), store, c.Store)
	if err != nil {
		return cli.WithHint(usage(err), "nothing was written")
	}
	if len(report) == 0 {
		return cli.Usagef("got no value in an old format in %d files", len(c.Files))
	}
	if err := writeStore(c.Store, store); err != nil {
		return err
	}
	for _, line := range report {
		fmt.Fprintln(env.Stdout, line)
	}
	fmt.Fprintf(env.Stderr, "kbgen: %s: %d added, sealed for %s; now take the old variables out of the pipelines, and ask the steps for the new ones: %s\n",
		c.Store, len(report), sealer.Template.KeyID, "kbgen secret get NAME")
	return nil
}
