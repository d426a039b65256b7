package secrets

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets/refused"
)

// Prefix begins every envelope.
const Prefix = schema.SealedPrefix

// IsEnvelope reports whether a text claims to be one.
func IsEnvelope(text string) bool { return strings.HasPrefix(text, Prefix) }

// Seal encrypts a secret for recipients.
//
// Shape: [Prefix], then an age file in base64url without padding; the file holds
// one JSON object in canonical form (RFC 8785).
//
// Size: at most [maxEnvelope] bytes, [maxPayloadEnvelope] of a payload. A token of 36 characters takes 550 with an
// X25519 key, 2,500 with a hybrid key.
//
// Errors: [Secret.Validate]'s; recipients of both kinds, hybrid and others.
func Seal(s *Secret, recipients []age.Recipient) (string, error) {
	if err := s.Validate(); err != nil {
		return "", fmt.Errorf("sealing %s: %w", s.Name, err)
	}
	var file bytes.Buffer
	w, err := age.Encrypt(&file, recipients...)
	if err == nil {
		_, err = w.Write(s.encode(true))
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return "", fmt.Errorf("sealing %s: %w", s.Name, err)
	}
	text := Prefix + base64.RawURLEncoding.EncodeToString(file.Bytes())
	most := maxEnvelope
	if s.Run != "" {
		most = maxPayloadEnvelope
	}
	if len(text) > most {
		return "", refusal(s.Name, refused.TooLarge, "got an envelope of %d bytes, want at most %d: fewer recipients or bindings", len(text), most)
	}
	return text, nil
}

// Open decrypts an envelope. What it says holds only when [Secret.Allow] does
// not refuse, too.
//
// Errors: *[refused.Refusal], with [refused.Malformed], [refused.TooLarge], [refused.UnknownRecipient] or [refused.Altered].
func Open(text string, identities []age.Identity) (*Secret, error) {
	return open(text, identities, maxEnvelope)
}

func open(text string, identities []age.Identity, most int) (*Secret, error) {
	file, err := envelopeFile(text, most)
	if err != nil {
		return nil, err
	}
	if len(identities) == 0 {
		return nil, refusal("", refused.UnknownRecipient, "the given keys open the old formats and nothing else")
	}
	r, err := age.Decrypt(bytes.NewReader(file), identities...)
	unknown, noIdentity := errors.AsType[*age.NoIdentityMatchError](err)
	switch {
	case noIdentity:
		return nil, refusal("", refused.UnknownRecipient, "it is sealed for %s; none opens with the keys here", described(unknown.StanzaTypes))
	case err != nil:
		return nil, refusal("", refused.Altered, "its header is not as it was sealed")
	}
	raw, err := io.ReadAll(io.LimitReader(r, int64(most)))
	if err != nil {
		return nil, refusal("", refused.Altered, "its content is not as it was sealed")
	}
	s, err := decode(raw)
	if err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil { // somebody sealed what this package would not
		return nil, refusal("", refused.Malformed, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return s, nil
}

func envelopeFile(text string, most int) ([]byte, error) {
	if len(text) > most {
		return nil, refusal("", refused.TooLarge, "got an envelope of %d bytes, want at most %d", len(text), most)
	}
	encoded, ok := strings.CutPrefix(text, Prefix)
	if !ok {
		return nil, refusal("", refused.Malformed, "got no %s at its beginning", Prefix)
	}
	file, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || strings.ContainsAny(encoded, "\r\n") { // which the decoder skips
		return nil, refusal("", refused.Malformed, "got what is no base64url without padding behind %s", Prefix)
	}
	return file, nil
}

// described names kinds of keys, each with its number.
func described(stanzas []string) string {
	var parts []string
	for _, kind := range []struct{ stanza, name string }{{"X25519", "X25519"}, {"mlkem768x25519", "hybrid"}, {"ssh-rsa", "RSA"}} {
		n := 0
		for _, s := range stanzas {
			if s == kind.stanza {
				n++
			}
		}
		switch {
		case n == 1:
			parts = append(parts, "one "+kind.name+" key")
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s keys", n, kind.name))
		}
	}
	if parts == nil {
		return "keys of other kinds"
	}
	return strings.Join(parts, " and ")
}
