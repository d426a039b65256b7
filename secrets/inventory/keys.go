package inventory

import (
	"errors"
	"fmt"

	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/legacy"
)

// Errors of [Keys.OpenLegacy] that its caller can mend.
var (
	ErrFormat        = errors.New("got neither " + secrets.Prefix + "… nor an old format")
	ErrRepositoryKey = errors.New("got a cryptic variable, want --repository-key, too: .buildkite/cryptic_repo_keys/repo_key.…")
)

// Keys open sealed values.
type Keys struct {
	Private    []*secrets.PrivateKey
	Repository []byte // of the plugin cryptic, nil if there is none
}

// AddRepository opens cryptic's key of a repository with one of the RSA keys.
func (k *Keys) AddRepository(sealed []byte) error {
	for _, private := range k.Private {
		if private.RSA == nil {
			continue
		}
		if key, err := legacy.OpenRepositoryKey(private.RSA, sealed); err == nil {
			k.Repository = key
			return nil
		}
	}
	return legacy.ErrOpen
}

// OpenLegacy opens a value in an old format. It tries every RSA key.
//
// Errors: [ErrFormat], [ErrRepositoryKey], or why the last key failed.
func (k *Keys) OpenLegacy(sealed string) (*legacy.Value, error) {
	format, err := legacy.Detect(sealed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if format == legacy.Variable {
		if k.Repository == nil {
			return nil, ErrRepositoryKey
		}
		return legacy.OpenVariable(k.Repository, sealed)
	}
	err = errors.New("got no RSA key, want secrets.private.key: the old formats know no other")
	for _, private := range k.Private {
		if private.RSA == nil {
			continue
		}
		var v *legacy.Value
		if v, err = legacy.Open(private.RSA, sealed); err == nil {
			return v, nil
		}
	}
	return nil, err
}

// Weakness says how short the key of a value is if it is too short, else "".
func Weakness(v *legacy.Value) string {
	if !v.Weak() {
		return ""
	}
	return fmt.Sprintf(", its passphrase has %d bytes only: count the value as public and replace it", v.Passphrase)
}
