package secret

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/inventory"
	"github.com/gpu-mode/kbgen/secrets/legacy"
)

// bindingFlags say who may have a value.
type bindingFlags struct {
	Org      string   `placeholder:"UUID" help:"the organization; required"`
	Pipeline []string `placeholder:"UUID" help:"the pipeline whose jobs may have the value; required; may be repeated"`
	Queue    []string `placeholder:"UUID" help:"only this cluster queue; may be repeated; default any"`
	Step     []string `placeholder:"KEY" help:"only this step; may be repeated; default any"`
	Ref      []string `placeholder:"REF" help:"only this whole ref, such as refs/heads/main; may be repeated; default any"`
	Source   []string `placeholder:"NAME" help:"only this source of builds; may be repeated; default any"`
}

func (f bindingFlags) binding() secrets.Binding {
	return secrets.Binding{Organization: f.Org, Pipelines: f.Pipeline, Queues: f.Queue, Steps: f.Step, Refs: f.Ref, Sources: f.Source}
}

// sealingFlags say for whom, until when and by whom.
type sealingFlags struct {
	Recipients string   `default:".buildkite/kbgen/recipients.txt" placeholder:"FILE" help:"the file of keys to seal for"`
	Recipient  []string `placeholder:"KEY" help:"a key age1pq1… or age1… instead of the file; may be repeated"`
	Expires    string   `placeholder:"DAY" help:"the last day, such as 2027-12-31; default a year from now"`
	NotBefore  string   `name:"not-before" placeholder:"DAY" help:"the first day; default today"`
	By         string   `placeholder:"TEXT" help:"who seals it, shown to whoever opens it"`
	Sign       string   `placeholder:"FILE" help:"sign with an Ed25519 key in PEM"`
}

func (f sealingFlags) sealer(env *cli.Env, now time.Time) (*secrets.Sealer, error) {
	now = now.UTC().Truncate(time.Second)
	s := &secrets.Sealer{Template: secrets.Secret{Issued: now, Expires: now.Add(secrets.DefaultLife), By: f.By}}
	var err error
	if f.Expires != "" {
		if s.Template.Expires, err = time.Parse(time.DateOnly, f.Expires); err != nil || !s.Template.Expires.After(now) {
			return nil, cli.Usagef("--expires: got %q, want a day to come, as %s", f.Expires, now.AddDate(1, 0, 0).Format(time.DateOnly))
		}
	}
	if f.NotBefore != "" {
		if s.Template.NotBefore, err = time.Parse(time.DateOnly, f.NotBefore); err != nil {
			return nil, cli.Usagef("--not-before: got %q, want a day as %s", f.NotBefore, now.Format(time.DateOnly))
		}
	}
	if s.Recipients, err = f.readRecipients(env, now); err != nil {
		return nil, err
	}
	s.Template.KeyID = s.Recipients.KeyID()
	if f.Sign != "" {
		if s.SigningKey, err = signingKey(env, f.Sign); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// readRecipients are the keys of the command line, else of the file.
func (f sealingFlags) readRecipients(env *cli.Env, now time.Time) (secrets.Recipients, error) {
	if len(f.Recipient) > 0 {
		var rs secrets.Recipients
		for i, text := range f.Recipient {
			key, err := secrets.ParsePublicKey(text)
			if err != nil {
				return nil, cli.Usagef("--recipient: %w", err)
			}
			rs = append(rs, secrets.Recipient{Name: fmt.Sprintf("key-%d", i+1), Added: now, Key: key})
		}
		rs, err := rs.Current(now)
		if err != nil {
			return nil, cli.Usagef("--recipient: %w", err)
		}
		return rs, nil
	}
	text, err := readFile(env, f.Recipients)
	if err != nil {
		return nil, cli.WithHint(&cli.UsageError{Err: err}, "say for whom: --recipients FILE, or --recipient KEY")
	}
	return parseRecipients(f.Recipients, text, now)
}

// parseRecipients returns the keys of a file that are in use.
func parseRecipients(file string, text []byte, now time.Time) (secrets.Recipients, error) {
	rs, err := secrets.ParseRecipients(string(text))
	if err == nil {
		rs, err = rs.Current(now)
	}
	if err != nil {
		return nil, cli.Usagef("%s: %w", file, err)
	}
	return rs, nil
}

// encryptCmd seals a value and prints what to paste, or puts it into a store.
type encryptCmd struct {
	Name string `arg:""`
	File string `placeholder:"PATH" help:"a file with the value, byte for byte; default the terminal, without echo, or standard input"`
	bindingFlags
	sealingFlags
	Store  string `placeholder:"FILE" help:"put the value there, usually .buildkite/secrets.kb.yaml; comments and order of the file stay"`
	Format string `enum:"kbsec1,v1" default:"kbsec1" placeholder:"FORMAT" help:"kbsec1, or v1 for hosts with the old hook: SECRET_NAME, bound to nothing"`
	Key    string `placeholder:"FILE" help:"with --format v1: the secrets.public.key of the hosts"`

	now func() time.Time
}

func (c *encryptCmd) Run(_ context.Context, env *cli.Env) error {
	if err := secrets.CheckName(c.Name); err != nil {
		return &cli.UsageError{Err: err}
	}
	if c.Format == "v1" {
		return c.legacy(env)
	}
	if c.Key != "" {
		return cli.Usagef("--key is for --format v1; kbsec1 takes --recipients or --recipient")
	}
	sealer, err := c.sealer(env, c.now())
	if err != nil {
		return err
	}
	// Before anybody is asked for a value, all else must be right.
	trial := sealer.Template
	trial.Name, trial.Value, trial.Binding = c.Name, []byte("x"), c.binding()
	if err := trial.Validate(); err != nil {
		return &cli.UsageError{Err: err}
	}
	var store *secrets.Store
	if c.Store != "" {
		if store, err = readStore(env, c.Store, true); err != nil {
			return err
		}
	}
	value, err := readValue(env, c.Name, c.File)
	if err != nil {
		return err
	}
	secret, text, err := sealer.Seal(c.Name, value, c.binding())
	if err != nil {
		return err
	}
	if store == nil {
		return snippet(env.Stdout, fmt.Sprintf("sealed for %s, ends %s", secret.KeyID, secret.Expires.Format(time.DateOnly)), c.Name+secrets.Suffix, text)
	}
	_, replaced := store.Lookup(c.Name)
	store.Set(secret, text)
	if err := writeStore(c.Store, store); err != nil {
		return err
	}
	what := "added"
	if replaced {
		what = "replaced"
	}
	fmt.Fprintf(env.Stderr, "kbgen: %s: %s %s, sealed for %s, ends %s\n", c.Store, c.Name, what, secret.KeyID, secret.Expires.Format(time.DateOnly))
	return nil
}

// legacy writes the form that hosts with the old hook read.
func (c *encryptCmd) legacy(env *cli.Env) error {
	if c.Key == "" || c.Store != "" || c.Sign != "" || len(c.Pipeline) > 0 {
		return cli.Usagef("--format v1 takes --key secrets.public.key and knows no store, no signature and no pipeline")
	}
	text, err := readFile(env, c.Key)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	key, err := legacy.ParsePublicKey(text)
	if err != nil {
		return cli.Usagef("%s: %w", c.Key, err)
	}
	value, err := readValue(env, c.Name, c.File)
	if err != nil {
		return err
	}
	sealed, err := legacy.SealV1(rand.Reader, key, value)
	if err != nil {
		return fmt.Errorf("encrypting %s: %w", c.Name, err)
	}
	name := inventory.LegacyPrefix + c.Name
	if schema.RedactedName(name) {
		fmt.Fprintf(env.Stderr, "kbgen: note: agents from version 4 on refuse to upload a pipeline that sets %s; kbsec1 is free of that\n", name)
	}
	return snippet(env.Stdout, "v1: bound to no pipeline, ends never", name, sealed)
}

// snippet prints what to paste into a step.
func snippet(w io.Writer, about, name, text string) error {
	_, err := fmt.Fprintf(w, "# %s\nenv:\n  %s: %q\n", about, name, text)
	return err
}

// readValue takes the value to seal: from a file, byte for byte; from a
// terminal, without showing it; or from standard input, byte for byte.
func readValue(env *cli.Env, name, file string) ([]byte, error) {
	if file == "" {
		if f, ok := env.Stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return askValue(env, f, name)
		}
		file = "-"
	}
	value, err := readFile(env, file)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	if len(value) == 0 || len(value) > secrets.MaxValue {
		return nil, cli.Usagef("the value of %s: got %d bytes, want 1 to %d", name, len(value), secrets.MaxValue)
	}
	if file == "-" && bytes.HasSuffix(value, []byte("\n")) && bytes.Count(value, []byte("\n")) == 1 {
		fmt.Fprintf(env.Stderr, "kbgen: note: the value ends in a line end, which is sealed with it; printf %%s has none\n")
	}
	return value, nil
}

// askValue asks at a terminal, twice: what nobody sees, nobody proof-reads.
func askValue(env *cli.Env, terminal *os.File, name string) ([]byte, error) {
	ask := func(prompt string) ([]byte, error) {
		fmt.Fprint(env.Stderr, prompt)
		value, err := term.ReadPassword(int(terminal.Fd()))
		fmt.Fprintln(env.Stderr)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return value, err
	}
	first, err := ask("Value of " + name + " (not shown): ")
	if err != nil {
		return nil, fmt.Errorf("reading the value: %w", err)
	}
	if len(first) == 0 {
		return nil, cli.WithHint(cli.Usagef("the value of %s: got nothing", name), "a value of several lines comes from a file: --file PATH")
	}
	second, err := ask("Once more: ")
	if err != nil {
		return nil, fmt.Errorf("reading the value: %w", err)
	}
	if !bytes.Equal(first, second) {
		return nil, cli.Usagef("the value of %s: got two different ones", name)
	}
	return first, nil
}

// signingKey reads an Ed25519 key in PEM, as openssl genpkey -algorithm ed25519
// makes it.
func signingKey(env *cli.Env, file string) (ed25519.PrivateKey, error) {
	text, err := readFile(env, file)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	key, err := parseSigningKey(text)
	if err != nil {
		return nil, cli.Usagef("%s: %w", file, err)
	}
	return key, nil
}

func parseSigningKey(text []byte) (ed25519.PrivateKey, error) {
	b, _ := pem.Decode(text)
	if b == nil || b.Type != "PRIVATE KEY" {
		return nil, errors.New("got no PEM block PRIVATE KEY, want an Ed25519 key")
	}
	key, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if err != nil {
		return nil, errors.New("got a PEM block PRIVATE KEY that is none")
	}
	if key, ok := key.(ed25519.PrivateKey); ok {
		return key, nil
	}
	return nil, errors.New("got a private key of another kind, want Ed25519")
}
