package secrets

import (
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets/legacy"
)

// A Kind is a kind of key.
type Kind string

// Kinds of keys. Hybrid ones and X25519 ones do not go together in one envelope:
// the latter would give away what the hybrid ones protect.
const (
	Hybrid Kind = "hybrid" // ML-KEM-768 with X25519: age1pq1…
	X25519 Kind = "x25519" // age1…
	// RSA keys open the old formats only. The padding of those turns a broker with an
	// RSA key into an oracle, which could decrypt envelopes for that key as well.
	RSA Kind = "rsa"
)

// A PublicKey is a recipient and how it is written.
type PublicKey struct {
	Kind Kind
	Text string // one line
	age.Recipient
}

// errRSA refuses an RSA key as a recipient.
var errRSA = errors.New("got an RSA key, which opens the old formats and nothing else: want age1…, which kbgen secret keygen makes")

// ParsePublicKey reads a recipient: age1pq1… or age1….
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
	case strings.HasPrefix(s, "ssh-rsa ") || strings.HasPrefix(s, "-----BEGIN "):
		return nil, errRSA
	case strings.HasPrefix(s, "AGE-SECRET-KEY-"):
		return nil, errors.New("got a private key, want the public one: it begins with age1")
	}
	return nil, fmt.Errorf("got %s, want age1…", text.Quote(text.Shorten(s, 12)))
}

// A PrivateKey opens envelopes, or the old formats if it is an RSA key.
type PrivateKey struct {
	Kind         Kind
	Public       *PublicKey      // nil of an RSA key
	RSA          *rsa.PrivateKey // nil of other kinds
	age.Identity                 // nil of an RSA key
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
		return []*PrivateKey{{Kind: RSA, RSA: key}}, nil
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

// Identities are keys as [Open] takes them, without those of the old formats.
func Identities(keys []*PrivateKey) []age.Identity {
	var all []age.Identity
	for _, k := range keys {
		if k.Identity != nil {
			all = append(all, k.Identity)
		}
	}
	return all
}
