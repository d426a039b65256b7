package pipelines

import (
	"fmt"
	"slices"
	"strings"
)

// A SecretStore is where a secret lies until a step needs it.
type SecretStore string

const (
	// BuildkiteStore is Buildkite's own: the agent fetches the value before the job.
	BuildkiteStore SecretStore = "buildkite"
	// SealedStore is the repository's file of sealed values: the broker of the step's
	// machine opens it for the step alone. See package secrets.
	SealedStore SecretStore = "kbsec1"
)

// SecretStores lists them.
var SecretStores = []string{string(BuildkiteStore), string(SealedStore)}

// A Secret is a value that a step needs and nobody else may have. The step's
// command finds it in the shell variable of its name.
//
// A step that runs a submission has none, and none runs in a container, where a
// secret would be another variable of everything in it: [CommandStep.Validate].
type Secret struct {
	Name  string // "REGISTRY_TOKEN"
	Store SecretStore
}

// ParseSecret reads STORE:NAME. A name alone is of [BuildkiteStore].
func ParseSecret(text string) (Secret, error) {
	store, name, ok := strings.Cut(text, ":")
	if !ok {
		store, name = string(BuildkiteStore), text
	}
	s := Secret{name, SecretStore(store)}
	return s, s.Validate()
}

// maxSecretName is the longest name that both stores take.
const maxSecretName = 255

// Validate returns what is wrong with the name or the store.
func (s Secret) Validate() error {
	if !slices.Contains(SecretStores, string(s.Store)) {
		return Unknown("store of secrets", string(s.Store), SecretStores)
	}
	if !fits(s.Name, isSecretName, maxSecretName) || strings.HasPrefix(s.Name, "BK") || strings.HasPrefix(s.Name, "BUILDKITE") {
		return fmt.Errorf("secret: got %.80q, want a name of capital letters, digits and _, a letter first and neither BUILDKITE nor BK", s.Name)
	}
	return nil
}

// Validate returns why the step cannot be had: secrets where a submission runs, or
// where they would not stay with the command.
func (s *CommandStep) Validate() error {
	for _, secret := range s.Secrets {
		switch {
		case s.Secure:
			return fmt.Errorf("step %s: secret %s: got a step that runs a submission, which has no secrets: want a step of its own", s.Key, secret.Name)
		case !s.Bare && s.On.Platform != Host:
			return fmt.Errorf("step %s: secret %s: got a step in a container, want one on its machine", s.Key, secret.Name)
		}
		if err := secret.Validate(); err != nil {
			return fmt.Errorf("step %s: %w", s.Key, err)
		}
	}
	return nil
}
