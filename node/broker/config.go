package broker

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets"
)

// config is what a broker is configured by.
type config struct {
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
	Old     *struct {
		Pipelines []string `yaml:"pipelines"`
		Refs      []string `yaml:"refs"`
		Steps     []string `yaml:"steps"`
		Sources   []string `yaml:"sources"`
	} `yaml:"old"`
}

// Configure makes the broker that a config file describes, and says what it is. The
// files that the config names are looked for in the directory credentials, unless
// that is "", and then beside the config. With open, any user of the machine may ask.
func Configure(file, credentials string, open bool) (*Broker, string, error) {
	place := func(name string) string { return place(name, credentials, filepath.Dir(file)) }
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, "", errors.Unwrap(err)
	}
	var config config
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&config); err != nil {
		return nil, "", fmt.Errorf("got a config that cannot be read: %s", text.Line(err.Error(), 300))
	}
	if config.Version != 1 {
		return nil, "", fmt.Errorf("version: got %d, want 1", config.Version)
	}
	b := &Broker{Now: time.Now}
	var about strings.Builder
	if b.policy, err = config.policy(&about); err != nil {
		return nil, "", err
	}
	if open && config.Host != nil {
		return nil, "", errors.New("host: got a socket that any user of the machine may ask at: want oidc, by which a job proves who it is, or --group")
	}
	if o := config.Old; o != nil {
		switch {
		case config.OIDC == nil:
			return nil, "", errors.New("old: want oidc too: nothing else proves the job's step")
		case len(o.Pipelines) == 0 || len(o.Refs) == 0 || len(o.Steps) == 0:
			return nil, "", errors.New("old: want pipelines, refs and steps: texts in the old formats are bound to nothing by themselves")
		}
		for _, id := range o.Pipelines {
			if !secrets.IsUUID(id) {
				return nil, "", fmt.Errorf("old: pipelines: got %s, want UUIDs in small letters", text.Quote(id))
			}
		}
		fmt.Fprintf(&about, "old formats: for pipelines %s, refs %s, steps %s\n", strings.Join(o.Pipelines, ", "), strings.Join(o.Refs, ", "), strings.Join(o.Steps, ", "))
		b.Old = &secrets.Binding{Pipelines: o.Pipelines, Refs: o.Refs, Steps: o.Steps, Sources: o.Sources}
	}
	if len(config.Keys) == 0 {
		return nil, "", errors.New("keys: got none, want at least one file")
	}
	for _, name := range config.Keys {
		path := place(name)
		keys, err := readKeys(path)
		if err != nil {
			return nil, "", fmt.Errorf("keys: %s: %w", path, err)
		}
		for _, k := range keys {
			serves := "old formats only"
			if k.Public != nil {
				serves = text.Shorten(k.Public.Text, 40)
			}
			fmt.Fprintf(&about, "key: %s, %s: %s\n", path, k.Kind, serves)
		}
		b.Keys = append(b.Keys, keys...)
	}
	for _, name := range config.Signers {
		path := place(name)
		key, err := readSigner(path)
		if err != nil {
			return nil, "", fmt.Errorf("signers: %s: %w", path, err)
		}
		fmt.Fprintf(&about, "signer: %s\n", path)
		b.Signers = append(b.Signers, key)
	}
	return b, about.String(), nil
}

func (c *config) policy(about io.Writer) (policy, error) {
	switch {
	case (c.OIDC == nil) == (c.Host == nil):
		return nil, errors.New("got not exactly one of oidc and host")
	case c.OIDC != nil:
		o := c.OIDC
		o.Audience, o.Issuer = cmp.Or(o.Audience, client.Audience), cmp.Or(o.Issuer, defaultIssuer)
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
		return newOIDC(o.Issuer, o.Audience, o.Organizations, time.Now), nil
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
	return &hostPolicy{Organization: c.Host.Organization, Pipelines: c.Host.Pipelines}, nil
}

// place is where a file of the config lies: systemd's credentials come first.
func place(name, credentials, beside string) string {
	if filepath.IsAbs(name) {
		return name
	}
	if credentials != "" {
		path := filepath.Join(credentials, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return filepath.Join(beside, name)
}

// readKeys reads private keys that nobody else can read: a job's user that could read
// them would need no broker.
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

// A Socket says where a broker listens, and who may ask it.
type Socket struct {
	Path   string
	Group  string // "": that of the process
	Any    bool   // any user may
	Handed bool   // systemd made it
}

// Listen takes the socket that systemd made, or makes one.
func (s *Socket) Listen() (net.Listener, error) {
	if s.Handed {
		handed, err := activation.Listeners()
		if err != nil || len(handed) != 1 || handed[0] == nil {
			return nil, fmt.Errorf("got %d sockets from systemd, want one: %v", len(handed), err)
		}
		return handed[0], nil
	}
	if info, err := os.Lstat(s.Path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, node.Usagef("--socket %s: got a file that is no socket", s.Path)
		}
		if conn, err := net.Dial("unix", s.Path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("--socket %s: another broker answers there", s.Path)
		}
		os.Remove(s.Path) // of a broker that was killed
	}
	mask := syscall.Umask(0o117)
	l, err := net.Listen("unix", s.Path)
	syscall.Umask(mask)
	if err == nil && s.Any {
		err = os.Chmod(s.Path, 0o666)
	}
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := s.give(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Open reports whether any user may ask: also at a socket that is there already, as
// systemd made it.
func (s *Socket) Open() bool {
	if s.Any {
		return true
	}
	info, err := os.Stat(s.Path)
	return err == nil && info.Mode()&fs.ModeSocket != 0 && info.Mode()&0o002 != 0
}

// give gives the socket to the group that may ask.
func (s *Socket) give() error {
	if s.Group == "" {
		return nil
	}
	g, err := user.LookupGroup(s.Group)
	if err != nil {
		return node.Usagef("--group: %w", err)
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil {
		return node.Usagef("--group: %w", err)
	}
	return os.Chown(s.Path, -1, id)
}
