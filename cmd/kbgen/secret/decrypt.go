package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/legacy"
)

// decryptCmd opens one value with a private key and prints it, byte for byte.
type decryptCmd struct {
	File          string   `arg:"" optional:"" default:"-"`
	Key           []string `required:"" placeholder:"FILE"`
	Name          string   `placeholder:"NAME"`
	RepositoryKey string   `name:"repository-key" placeholder:"FILE"`

	now clock
}

func (c *decryptCmd) Run(_ context.Context, env *cli.Env) error {
	keys, err := privateKeys(env, c.Key)
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
	if isStore(c.File) {
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

// isStore reports whether a file is a store, by its name.
func isStore(file string) bool {
	name := filepath.Base(file)
	return strings.HasSuffix(name, ".kb.yaml") || strings.HasSuffix(name, ".kb.yml")
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
func (c *decryptCmd) open(env *cli.Env, keys []*secrets.PrivateKey, sealed string) ([]byte, error) {
	s, err := secrets.Open(sealed, secrets.Identities(keys))
	if err != nil {
		return nil, err
	}
	if c.Name != "" && s.Name != c.Name {
		return nil, &secrets.Refusal{Name: c.Name, Reason: secrets.Renamed, Detail: "it was sealed as " + s.Name}
	}
	fmt.Fprintf(env.Stderr, "kbgen-secret: %s: sealed for %s%s, organization %s, pipelines %s, ends %s%s\n", s.Name, s.KeyID, by(s),
		s.Organization, strings.Join(s.Pipelines, ", "), s.Expires.Format(time.DateOnly), passed(s, c.now()))
	return s.Value, nil
}

func by(s *secrets.Secret) string {
	if s.By == "" {
		return ""
	}
	return " by " + s.By
}

func passed(s *secrets.Secret, now time.Time) string {
	if now.Before(s.Expires) {
		return ""
	}
	return " (expired)"
}

func (c *decryptCmd) openLegacy(env *cli.Env, keys []*secrets.PrivateKey, sealed string) ([]byte, error) {
	repository, err := repositoryKey(env, keys, c.RepositoryKey)
	if err != nil {
		return nil, err
	}
	v, err := openLegacy(keys, repository, sealed)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(env.Stderr, "kbgen-secret: format %s%s; bound to nothing. kbgen secret migrate makes kbsec1 of it\n", v.Format, weakness(v))
	return v.Text, nil
}

// weakness says how much of the key counts where it is little.
func weakness(v *legacy.Value) string {
	if !v.Weak() {
		return ""
	}
	return fmt.Sprintf(", its passphrase has %d bytes only: count the value as public and replace it", v.Passphrase)
}

// openLegacy tries every RSA key.
func openLegacy(keys []*secrets.PrivateKey, repository []byte, sealed string) (*legacy.Value, error) {
	format, err := legacy.Detect(sealed)
	if err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("got neither %s… nor an old format: %w", secrets.Prefix, err)}
	}
	if format == legacy.Variable {
		if repository == nil {
			return nil, cli.Usagef("got a cryptic variable, want --repository-key, too: .buildkite/cryptic_repo_keys/repo_key.…")
		}
		return legacy.OpenVariable(repository, sealed)
	}
	err = errors.New("got no RSA key, want secrets.private.key: the old formats know no other")
	for _, k := range keys {
		if k.RSA == nil {
			continue
		}
		var v *legacy.Value
		if v, err = legacy.Open(k.RSA, sealed); err == nil {
			return v, nil
		}
	}
	return nil, err
}

// repositoryKey opens cryptic's key of a repository, nil when there is none.
func repositoryKey(env *cli.Env, keys []*secrets.PrivateKey, file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	sealed, err := readFile(env, file)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	for _, k := range keys {
		if k.RSA == nil {
			continue
		}
		if key, err := legacy.OpenRepositoryKey(k.RSA, sealed); err == nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", file, legacy.ErrOpen)
}
