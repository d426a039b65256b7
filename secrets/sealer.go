package secrets

import "crypto/ed25519"

// A Sealer seals secrets for one set of recipients.
type Sealer struct {
	Recipients Recipients
	Template   Secret             // but for name, value and binding
	SigningKey ed25519.PrivateKey // nil signs nothing
}

// Seal seals one value.
func (s *Sealer) Seal(name string, value []byte, b Binding) (*Secret, string, error) {
	secret := s.Template
	secret.Name, secret.Value, secret.Binding = name, value, b
	return s.Reseal(&secret)
}

// Reseal seals an opened secret for the recipients.
func (s *Sealer) Reseal(secret *Secret) (*Secret, string, error) {
	secret.KeyID, secret.Signature = s.Recipients.KeyID(), nil
	if s.SigningKey != nil {
		secret.Sign(s.SigningKey)
	}
	text, err := Seal(secret, s.Recipients.Keys())
	return secret, text, err
}
