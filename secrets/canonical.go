package secrets

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpu-mode/kbgen/secrets/refused"
)

// wire is the JSON object within an envelope, its members in the order of
// their names: RFC 8785, of which we need objects, arrays, strings and integers.
type wire struct {
	By           string   `json:"by"`
	Expires      int64    `json:"exp"` // seconds since 1970, as nbf and iat
	Issued       int64    `json:"iat"`
	KeyID        string   `json:"kid"`
	Name         string   `json:"name"`
	NotBefore    int64    `json:"nbf"`
	Organization string   `json:"org"`
	Pipelines    []string `json:"pipelines"`
	Queues       []string `json:"queues"`
	Refs         []string `json:"refs"`
	Run          string   `json:"run"` // of payloads
	Signature    string   `json:"sig"` // standard base64
	Sources      []string `json:"sources"`
	Steps        []string `json:"steps"`
	Version      int64    `json:"v"`
	Value        *string  `json:"value"`     // of a value that is plain
	ValueBase64  *string  `json:"value_b64"` // of any other
}

// encode is the canonical form: what has no value is left out, and there is one
// text for one secret. With signed, the signature is part of it.
func (s *Secret) encode(signed bool) []byte {
	b := []byte{'{'}
	member := func(name string) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
	}
	text := func(name, value string) {
		if value != "" {
			member(name)
			b = appendString(b, value)
		}
	}
	number := func(name string, value int64) {
		member(name)
		b = strconv.AppendInt(b, value, 10)
	}
	list := func(name string, values []string) {
		if len(values) == 0 {
			return
		}
		member(name)
		for i, v := range values {
			b = append(b, "[,"[min(i, 1)])
			b = appendString(b, v)
		}
		b = append(b, ']')
	}
	text("by", s.By)
	number("exp", s.Expires.Unix())
	number("iat", s.Issued.Unix())
	text("kid", s.KeyID)
	text("name", s.Name)
	if s.NotBefore.Unix() > 0 {
		number("nbf", s.NotBefore.Unix())
	}
	text("org", s.Organization)
	list("pipelines", s.Pipelines)
	list("queues", s.Queues)
	list("refs", s.Refs)
	text("run", s.Run)
	if signed && s.Signature != nil {
		text("sig", base64.StdEncoding.EncodeToString(s.Signature))
	}
	list("sources", s.Sources)
	list("steps", s.Steps)
	number("v", 1)
	if plain(s.Value) {
		text("value", string(s.Value))
	} else {
		text("value_b64", base64.StdEncoding.EncodeToString(s.Value))
	}
	return append(b, '}')
}

// plain reports whether a value is written as a text: UTF-8 without controls,
// which would take six characters each, but for tabs and line ends.
func plain(value []byte) bool {
	return utf8.Valid(value) && !bytes.ContainsFunc(value, func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\r", r) })
}

// appendString writes a string as RFC 8785 has it.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case strings.IndexByte("\b\t\n\f\r", c) >= 0:
			b = append(b, '\\', "btn.fr"[c-'\b'])
		default:
			b = fmt.Appendf(b, `\u%04x`, c)
		}
	}
	return append(b, '"')
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
		Name: w.Name, KeyID: w.KeyID, By: w.By, Issued: time.Unix(w.Issued, 0).UTC(), Expires: time.Unix(w.Expires, 0).UTC(),
		Binding: Binding{Organization: w.Organization, Pipelines: w.Pipelines, Queues: w.Queues, Steps: w.Steps, Refs: w.Refs, Sources: w.Sources, Run: w.Run},
	}
	if w.NotBefore != 0 {
		s.NotBefore = time.Unix(w.NotBefore, 0).UTC()
	}
	var err error
	switch {
	case w.Value != nil:
		s.Value = []byte(*w.Value)
	case w.ValueBase64 != nil:
		s.Value, err = base64.StdEncoding.DecodeString(*w.ValueBase64)
	}
	if err == nil && w.Signature != "" {
		s.Signature, err = base64.StdEncoding.DecodeString(w.Signature)
	}
	if err != nil || !bytes.Equal(s.encode(true), raw) {
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
