package secrets

import (
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"
	"filippo.io/age/agessh"
	"golang.org/x/crypto/ssh"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets/legacy"
)

// A Kind is a kind of key.
type Kind string

// Kinds of keys. Hybrid ones and others do not go together in one envelope:
// the others would give away what the hybrid ones protect.
const (
	Hybrid Kind = "hybrid" // ML-KEM-768 with X25519: age1pq1…
	X25519 Kind = "x25519" // age1…
	RSA    Kind = "rsa"    // ssh-rsa …, 2,048 bits at least
)

// minRSABits is what an RSA recipient needs at least.
const minRSABits = 2048

// A PublicKey is a recipient and how it is written.
type PublicKey struct {
	Kind Kind
	Text string // one line
	age.Recipient
}

// ParsePublicKey reads a recipient: age1pq1…, age1…, a line that begins with
// ssh-rsa, or an RSA public key in PEM, as secrets.public.key is.
func ParsePublicKey(s string) (*PublicKey, error) {
	s = strings.TrimSpace(s)
	switch {
	case strings.HasPrefix(s, "age1pq1"):
		r, err := age.ParseHybridRecipient(s)
		if err != nil {
			return nil, errors.New("got a key age1pq1… with an error in it")
		}
		return &PublicKey{Hybrid, s, r}, nil
	case strings.HasPrefix(s, "age1"):
		r, err := age.ParseX25519Recipient(s)
		if err != nil {
			return nil, errors.New("got a key age1… with an error in it")
		}
		return &PublicKey{X25519, s, r}, nil
	case strings.HasPrefix(s, "ssh-rsa "):
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s))
		if err != nil {
			return nil, errors.New("got a key ssh-rsa with an error in it")
		}
		return rsaRecipient(key)
	case strings.HasPrefix(s, "-----BEGIN "):
		key, err := legacy.ParsePublicKey([]byte(s))
		if err != nil {
			return nil, err
		}
		return publicRSA(key)
	case strings.HasPrefix(s, "AGE-SECRET-KEY-"):
		return nil, errors.New("got a private key, want the public one: it begins with age1")
	}
	return nil, fmt.Errorf("got %s, want age1…, ssh-rsa … or a PEM block PUBLIC KEY", text.Quote(text.Shorten(s, 12)))
}

func publicRSA(key *rsa.PublicKey) (*PublicKey, error) {
	k, err := ssh.NewPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("got an RSA key that cannot be used: %w", err)
	}
	return rsaRecipient(k)
}

func rsaRecipient(key ssh.PublicKey) (*PublicKey, error) {
	r, err := agessh.NewRSARecipient(key)
	if err != nil {
		return nil, fmt.Errorf("got an RSA key that cannot be used, want one of %d bits or more", minRSABits)
	}
	return &PublicKey{RSA, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), r}, nil
}

// A PrivateKey opens envelopes, and when it is an RSA key the old formats, too.
type PrivateKey struct {
	Kind   Kind
	Public *PublicKey
	RSA    *rsa.PrivateKey // nil of other kinds
	age.Identity
}

// ParsePrivateKeys reads the keys of a file: lines AGE-SECRET-KEY-…, with
// comments behind #, or one RSA key in PEM.
//
// Errors say which line is wrong; none quotes any of it.
func ParsePrivateKeys(file []byte) ([]*PrivateKey, error) {
	if bytes.Contains(file, []byte("-----BEGIN ")) {
		key, err := legacy.ParsePrivateKey(file)
		if err != nil {
			return nil, err
		}
		public, err := publicRSA(&key.PublicKey)
		if err != nil {
			return nil, err
		}
		identity, err := agessh.NewRSAIdentity(key)
		if err != nil {
			return nil, errors.New("got an RSA key that cannot be used")
		}
		return []*PrivateKey{{RSA, public, key, identity}}, nil
	}
	var keys []*PrivateKey
	for i, line := range strings.Split(string(file), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parsePrivateKey(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		keys = append(keys, key)
	}
	if keys == nil {
		return nil, errors.New("got no key, want lines AGE-SECRET-KEY-… or a PEM block PRIVATE KEY")
	}
	return keys, nil
}

func parsePrivateKey(line string) (*PrivateKey, error) {
	switch {
	case strings.HasPrefix(line, "AGE-SECRET-KEY-PQ-1"):
		if i, err := age.ParseHybridIdentity(line); err == nil {
			return newHybrid(i), nil
		}
		return nil, errors.New("got a key AGE-SECRET-KEY-PQ-1… with an error in it")
	case strings.HasPrefix(line, "AGE-SECRET-KEY-1"):
		if i, err := age.ParseX25519Identity(line); err == nil {
			return newX25519(i), nil
		}
		return nil, errors.New("got a key AGE-SECRET-KEY-1… with an error in it")
	}
	return nil, errors.New("got no private key, want AGE-SECRET-KEY-…")
}

func newHybrid(i *age.HybridIdentity) *PrivateKey {
	return &PrivateKey{Hybrid, &PublicKey{Hybrid, i.Recipient().String(), i.Recipient()}, nil, i}
}

func newX25519(i *age.X25519Identity) *PrivateKey {
	return &PrivateKey{X25519, &PublicKey{X25519, i.Recipient().String(), i.Recipient()}, nil, i}
}

// GenerateKey makes a key of a kind, [Hybrid] or [X25519], and the line that
// [ParsePrivateKeys] reads.
func GenerateKey(kind Kind) (key *PrivateKey, line string, err error) {
	switch kind {
	case Hybrid:
		i, err := age.GenerateHybridIdentity()
		if err != nil {
			return nil, "", err
		}
		return newHybrid(i), i.String(), nil
	case X25519:
		i, err := age.GenerateX25519Identity()
		if err != nil {
			return nil, "", err
		}
		return newX25519(i), i.String(), nil
	}
	return nil, "", fmt.Errorf("kind of key: got %s, want %s or %s", text.Quote(string(kind)), Hybrid, X25519)
}

// Identities are keys as [Open] takes them.
func Identities(keys []*PrivateKey) []age.Identity {
	all := make([]age.Identity, len(keys))
	for i, k := range keys {
		all[i] = k.Identity
	}
	return all
}
