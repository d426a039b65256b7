package secrets

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpu-mode/kbgen/secrets/refused"
)

// wire is the JSON object within an envelope, its members in the order of
// their names: RFC 8785, of which we need objects, arrays, strings and integers.
type wire struct {
	By           string   `json:"by,omitempty"`
	Expires      int64    `json:"exp"` // seconds since 1970, as nbf and iat
	Issued       int64    `json:"iat"`
	KeyID        string   `json:"kid,omitempty"`
	Name         string   `json:"name,omitempty"`
	NotBefore    int64    `json:"nbf,omitempty"`
	Organization string   `json:"org,omitempty"`
	Pipelines    []string `json:"pipelines,omitempty"`
	Queues       []string `json:"queues,omitempty"`
	Refs         []string `json:"refs,omitempty"`
	Run          string   `json:"run,omitempty"` // of payloads
	Signature    []byte   `json:"sig,omitempty"` // standard base64
	Sources      []string `json:"sources,omitempty"`
	Steps        []string `json:"steps,omitempty"`
	Version      int64    `json:"v"`
	Value        string   `json:"value,omitempty"`     // of a value that is plain
	ValueBase64  []byte   `json:"value_b64,omitempty"` // of any other
}

// separators are two characters that package json escapes and RFC 8785 does not.
var separators = strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029")

// encode is the canonical form: what has no value is left out, and there is one
// text for one secret. With signed, the signature is part of it.
func (s *Secret) encode(signed bool) []byte {
	w := wire{
		By: s.By, Expires: s.Expires.Unix(), Issued: s.Issued.Unix(), KeyID: s.KeyID, Name: s.Name, NotBefore: max(s.NotBefore.Unix(), 0), Organization: s.Organization,
		Pipelines: s.Pipelines, Queues: s.Queues, Refs: s.Refs, Run: s.Run, Sources: s.Sources, Steps: s.Steps, Version: 1,
	}
	if signed {
		w.Signature = s.Signature
	}
	if plain(s.Value) {
		w.Value = string(s.Value)
	} else {
		w.ValueBase64 = s.Value
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(w) // strings and numbers do not fail
	return []byte(separators.Replace(strings.TrimSuffix(b.String(), "\n")))
}

// plain reports whether a value is written as a text: UTF-8 without controls,
// which would take six characters each, but for tabs and line ends.
func plain(value []byte) bool {
	return utf8.Valid(value) && !bytes.ContainsFunc(value, func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\r", r) })
}

// decode reads the canonical form and nothing else. Its errors quote nothing.
func decode(raw []byte) (*Secret, error) {
	var w wire
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return nil, refusal("", refused.Malformed, "the object within is not of this version")
	}
	if w.Version != 1 {
		return nil, refusal("", refused.Malformed, "version: got %d, want 1", w.Version)
	}
	s := &Secret{
		Name: w.Name, KeyID: w.KeyID, By: w.By, Value: w.ValueBase64, Signature: w.Signature, Issued: time.Unix(w.Issued, 0).UTC(), Expires: time.Unix(w.Expires, 0).UTC(),
		Binding: Binding{Organization: w.Organization, Pipelines: w.Pipelines, Queues: w.Queues, Steps: w.Steps, Refs: w.Refs, Sources: w.Sources, Run: w.Run},
	}
	if w.NotBefore != 0 {
		s.NotBefore = time.Unix(w.NotBefore, 0).UTC()
	}
	if w.Value != "" {
		s.Value = []byte(w.Value)
	}
	if !bytes.Equal(s.encode(true), raw) {
		return nil, refusal("", refused.Malformed, "the object within is not in its canonical form")
	}
	return s, nil
}

// signedText is what a signature is over: nobody can take it for another's.
func (s *Secret) signedText() []byte { return append([]byte("kbsec1 signature\n"), s.encode(false)...) }

// Sign sets the signature. Whatever is changed later breaks it.
func (s *Secret) Sign(key ed25519.PrivateKey) { s.Signature = ed25519.Sign(key, s.signedText()) }

// Signed reports whether one of the keys has signed the secret.
//
// Errors: *[refused.Refusal] with [refused.Unsigned].
func (s *Secret) Signed(keys []ed25519.PublicKey) error {
	if s.Signature == nil {
		return refusal(s.Name, refused.Unsigned, "nobody has signed it")
	}
	if !slices.ContainsFunc(keys, func(k ed25519.PublicKey) bool {
		return len(k) == ed25519.PublicKeySize && ed25519.Verify(k, s.signedText(), s.Signature)
	}) {
		return refusal(s.Name, refused.Unsigned, "the signature is of none of the %d keys that are trusted", len(keys))
	}
	return nil
}
