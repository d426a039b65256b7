package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node/broker"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/templates"
)

// secretdCmd is the broker of secrets.
type secretdCmd struct {
	Config string `default:"/etc/kbnode/secretd.yml" placeholder:"FILE"`
	Socket string `default:"/run/kbnode/secretd.sock" placeholder:"PATH"`
	Group  string `placeholder:"NAME" xor:"who"`
	Any    bool   `name:"any-user" xor:"who"`
	Check  bool   `xor:"way"`

	Unit       bool   `xor:"way"`
	SocketUnit bool   `xor:"way"`
	Credential string `placeholder:"FILE"`
}

// brokerConfig is its config file.
type brokerConfig struct {
	Version int      `yaml:"version"`
	Keys    []string `yaml:"keys"`
	OIDC    *struct {
		Organizations []string `yaml:"organizations"`
		Audience      string   `yaml:"audience"`
		Issuer        string   `yaml:"issuer"`
	} `yaml:"oidc"`
	Host *struct {
		Organization string   `yaml:"organization"`
		Pipelines    []string `yaml:"pipelines"`
	} `yaml:"host"`
	Signers []string `yaml:"signers"`
	Old     struct {
		Pipelines []string `yaml:"pipelines"`
	} `yaml:"old"`
}

func (c *secretdCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Unit || c.SocketUnit {
		return c.units(env)
	}
	b, about, err := c.broker(env)
	if err != nil {
		return cli.Usagef("%s: %w", c.Config, err)
	}
	if c.Check {
		_, err := io.WriteString(env.Stdout, about)
		return err
	}
	b.Log = slog.New(slog.NewTextHandler(env.Stderr, nil))
	l, err := c.listen(env)
	if err != nil {
		return err
	}
	b.Log.Info("answering", "socket", l.Addr().String(), "keys", len(b.Keys))
	return b.Serve(ctx, l)
}

// units prints what systemd starts the broker by.
func (c *secretdCmd) units(env *cli.Env) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	s := templates.Secretd{Program: program, Config: c.Config, Credential: c.Credential, Socket: c.Socket, Group: cmp.Or(c.Group, "root"), AnyUser: c.Any}
	if c.Any {
		if _, _, err := c.broker(env); err != nil {
			return cli.Usagef("--any-user: %s: %w", c.Config, err)
		}
	}
	unit, err := s.Service()
	if c.SocketUnit {
		unit, err = s.SocketUnit()
	}
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	_, err = io.WriteString(env.Stdout, unit)
	return err
}

// broker makes the broker that the config describes, and says what it is.
func (c *secretdCmd) broker(env *cli.Env) (*broker.Broker, string, error) {
	raw, err := os.ReadFile(c.Config)
	if err != nil {
		return nil, "", errors.Unwrap(err)
	}
	var config brokerConfig
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&config); err != nil {
		return nil, "", fmt.Errorf("got a config that cannot be read: %s", text.Line(err.Error(), 300))
	}
	if config.Version != 1 {
		return nil, "", fmt.Errorf("version: got %d, want 1", config.Version)
	}
	b := &broker.Broker{Now: time.Now}
	var about strings.Builder
	if b.Policy, err = config.policy(&about); err != nil {
		return nil, "", err
	}
	if open := c.Any || c.anybody(); open && config.Host != nil {
		return nil, "", errors.New("host: got a socket that any user of the machine may ask at: want oidc, by which a job proves who it is, or --group")
	}
	for _, id := range config.Old.Pipelines {
		if !secrets.IsUUID(id) {
			return nil, "", fmt.Errorf("old: pipelines: got %s, want UUIDs in small letters", text.Quote(id))
		}
		fmt.Fprintf(&about, "old formats: for pipeline %s\n", id)
	}
	b.Old = config.Old.Pipelines
	if len(config.Keys) == 0 {
		return nil, "", errors.New("keys: got none, want at least one file")
	}
	for _, name := range config.Keys {
		path := c.place(env, name)
		keys, err := readKeys(path)
		if err != nil {
			return nil, "", fmt.Errorf("keys: %s: %w", path, err)
		}
		for _, k := range keys {
			fmt.Fprintf(&about, "key: %s, %s: %s\n", path, k.Kind, text.Shorten(k.Public.Text, 40))
		}
		b.Keys = append(b.Keys, keys...)
	}
	for _, name := range config.Signers {
		path := c.place(env, name)
		key, err := readSigner(path)
		if err != nil {
			return nil, "", fmt.Errorf("signers: %s: %w", path, err)
		}
		fmt.Fprintf(&about, "signer: %s\n", path)
		b.Signers = append(b.Signers, key)
	}
	return b, about.String(), nil
}

func (c *brokerConfig) policy(about io.Writer) (broker.Policy, error) {
	switch {
	case (c.OIDC == nil) == (c.Host == nil):
		return nil, errors.New("got not exactly one of oidc and host")
	case c.OIDC != nil:
		o := c.OIDC
		if o.Audience == "" {
			o.Audience = broker.Audience
		}
		if o.Issuer == "" {
			o.Issuer = broker.Issuer
		}
		if !strings.HasPrefix(o.Issuer, "https://") && !strings.HasPrefix(o.Issuer, "http://127.0.0.1:") {
			return nil, fmt.Errorf("oidc: issuer: got %s, want https://…: whoever answers for it decides who is believed", text.Quote(o.Issuer))
		}
		if len(o.Organizations) == 0 {
			return nil, errors.New("oidc: organizations: got none: all of Buildkite signs with the same keys")
		}
		for _, id := range o.Organizations {
			if !secrets.IsUUID(id) {
				return nil, fmt.Errorf("oidc: organizations: got %s, want a UUID in small letters", text.Quote(id))
			}
		}
		fmt.Fprintf(about, "believed: tokens of %s for %s, organizations %s\n", o.Issuer, o.Audience, strings.Join(o.Organizations, ", "))
		return broker.NewOIDC(o.Issuer, o.Audience, o.Organizations, time.Now), nil
	}
	for _, id := range append([]string{c.Host.Organization}, c.Host.Pipelines...) {
		if !secrets.IsUUID(id) {
			return nil, fmt.Errorf("host: got %s, want UUIDs in small letters", text.Quote(id))
		}
	}
	if len(c.Host.Pipelines) == 0 {
		return nil, errors.New("host: pipelines: got none")
	}
	fmt.Fprintf(about, "believed: whatever runs here, as pipelines %s of organization %s; this trusts what Buildkite tells the agent\n",
		strings.Join(c.Host.Pipelines, ", "), c.Host.Organization)
	return &broker.Host{Organization: c.Host.Organization, Pipelines: c.Host.Pipelines}, nil
}

// place is where a file of the config lies: systemd's credentials come first.
func (c *secretdCmd) place(env *cli.Env, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	if dir := env.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		if path := filepath.Join(dir, name); exists(path) {
			return path
		}
	}
	return filepath.Join(filepath.Dir(c.Config), name)
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// readKeys reads private keys that nobody else can read: a job's user that could
// would need no broker.
func readKeys(path string) ([]*secrets.PrivateKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if info.Mode().Perm()&0o077 != 0 || int(owner) != os.Geteuid() {
		return nil, fmt.Errorf("got a file of user %d with mode %04o, want one of user %d that nobody else can read (0600)", owner, info.Mode().Perm(), os.Geteuid())
	}
	content, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, err
	}
	return secrets.ParsePrivateKeys(content)
}

func readSigner(path string) (ed25519.PublicKey, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	b, _ := pem.Decode(content)
	if b == nil || b.Type != "PUBLIC KEY" {
		return nil, errors.New("got no PEM block PUBLIC KEY")
	}
	key, err := x509.ParsePKIXPublicKey(b.Bytes)
	if err != nil {
		return nil, errors.New("got a PEM block PUBLIC KEY that is none")
	}
	if key, ok := key.(ed25519.PublicKey); ok {
		return key, nil
	}
	return nil, fmt.Errorf("got a %T, want an Ed25519 key", key)
}

// listen takes the socket that systemd made, or makes one.
func (c *secretdCmd) listen(env *cli.Env) (net.Listener, error) {
	if env.Getenv("LISTEN_FDS") != "" {
		handed, err := activation.Listeners()
		if err != nil || len(handed) != 1 || handed[0] == nil {
			return nil, fmt.Errorf("got %d sockets from systemd, want one: %v", len(handed), err)
		}
		return handed[0], nil
	}
	if info, err := os.Lstat(c.Socket); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, cli.Usagef("--socket %s: got a file that is no socket", c.Socket)
		}
		if conn, err := net.Dial("unix", c.Socket); err == nil {
			conn.Close()
			return nil, fmt.Errorf("--socket %s: another broker answers there", c.Socket)
		}
		os.Remove(c.Socket) // of a broker that was killed
	}
	old := syscall.Umask(0o117)
	l, err := net.Listen("unix", c.Socket)
	syscall.Umask(old)
	if err == nil && c.Any {
		err = os.Chmod(c.Socket, 0o666)
	}
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := c.own(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// anybody reports whether there is a socket already that any user may ask at, as
// systemd made it.
func (c *secretdCmd) anybody() bool {
	info, err := os.Stat(c.Socket)
	return err == nil && info.Mode()&fs.ModeSocket != 0 && info.Mode()&0o002 != 0
}

// own gives the socket to the group that may ask.
func (c *secretdCmd) own() error {
	if c.Group == "" {
		return nil
	}
	g, err := user.LookupGroup(c.Group)
	if err != nil {
		return cli.Usagef("--group: %w", err)
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil {
		return cli.Usagef("--group: %w", err)
	}
	return os.Chown(c.Socket, -1, id)
}
