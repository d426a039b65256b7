package secret

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

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
