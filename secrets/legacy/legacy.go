package legacy

import (
	"bytes"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A Format is one of the old forms of an encrypted value.
type Format string

// Formats. What each consists of: R is an RSA block with PKCS #1 v1.5 padding,
// C a container of openssl enc; both in standard base64 on one line.
const (
	V0       Format = "v0"               // R, of the value itself
	V1       Format = "v1"               // R;C, R of a key file of base64 lines
	AdHoc    Format = "cryptic ad hoc"   // R;C, R of 128 random bytes
	Variable Format = "cryptic variable" // C, under a key of the repository
)

// maxText bounds an encrypted text, bytes: what Linux takes as one variable.
const maxText = 128 << 10

// ErrOpen is every way in which a value does not open: another key, a changed
// text, broken padding. They are not told apart, since whoever could tell them
// apart could decrypt with the answers.
var ErrOpen = errors.New("the value does not open with this key, or was changed")

// ErrFormat is a text that is in none of the old formats.
var ErrFormat = errors.New("the text is in none of the formats v0, v1 and cryptic's")

// A Value is what was encrypted.
type Value struct {
	Format Format
	Text   []byte // without the one line end that the tools append

	// Passphrase is how many bytes of the key file count, 0 for [V0], which has
	// none. 64 for the tool's own v1. A value with fewer than [weakPassphrase]
	// can be found by trying and counts as public.
	Passphrase int
}

// weakPassphrase is the least number of random bytes that nobody tries through.
const weakPassphrase = 16

// Weak reports whether the value can be found without the key.
func (v *Value) Weak() bool { return v.Format != V0 && v.Passphrase < weakPassphrase }

// parts are the two blocks of a text; key is nil for [Variable], container for
// [V0].
type parts struct{ key, container []byte }

func split(text string) (parts, error) {
	if len(text) > maxText {
		return parts{}, fmt.Errorf("got %d bytes, want at most %d: %w", len(text), maxText, ErrFormat)
	}
	first, second, two := strings.Cut(strings.TrimSpace(text), ";")
	head, err := base64.StdEncoding.Strict().DecodeString(first)
	if err != nil || len(head) == 0 {
		return parts{}, ErrFormat
	}
	if !two {
		if bytes.HasPrefix(head, []byte(containerMark)) {
			return parts{container: head}, nil
		}
		if len(head)%64 != 0 { // a block is as long as its key, 1024 bits and up
			return parts{}, ErrFormat
		}
		return parts{key: head}, nil
	}
	container, err := base64.StdEncoding.Strict().DecodeString(second)
	if err != nil || !bytes.HasPrefix(container, []byte(containerMark)) {
		return parts{}, ErrFormat
	}
	return parts{head, container}, nil
}

// Detect says which format a text is in as far as it shows without a key: [V0],
// [Variable], or [V1] for that and [AdHoc], which differ in the encrypted key.
//
// Errors: [ErrFormat].
func Detect(text string) (Format, error) {
	p, err := split(text)
	switch {
	case err != nil:
		return "", err
	case p.key == nil:
		return Variable, nil
	case p.container == nil:
		return V0, nil
	}
	return V1, nil
}

// Open decrypts a text of format [V0], [V1] or [AdHoc].
//
// Errors: [ErrFormat], also for [Variable], which [OpenVariable] reads; [ErrOpen].
// None quotes text or value.
func Open(key *rsa.PrivateKey, text string) (*Value, error) {
	p, err := split(text)
	if err != nil {
		return nil, err
	}
	if p.key == nil {
		return nil, fmt.Errorf("a cryptic variable opens with its repository's key: %w", ErrFormat)
	}
	opened, err := openBlock(key, p.key)
	if err != nil {
		return nil, err
	}
	if p.container == nil {
		return &Value{Format: V0, Text: withoutLineEnd(opened)}, nil
	}
	format := V1
	if !isBase64Lines(opened) {
		format = AdHoc
	}
	return openValue(format, opened, p.container)
}

// OpenVariable decrypts a text of format [Variable] with the repository's key,
// which [OpenRepositoryKey] has opened.
func OpenVariable(repositoryKey []byte, text string) (*Value, error) {
	p, err := split(text)
	if err != nil {
		return nil, err
	}
	if p.key != nil {
		return nil, fmt.Errorf("the text is no cryptic variable: %w", ErrFormat)
	}
	return openValue(Variable, repositoryKey, p.container)
}

// OpenRepositoryKey opens the content of cryptic's repo_key.<fingerprint>.
func OpenRepositoryKey(key *rsa.PrivateKey, file []byte) ([]byte, error) {
	return openBlock(key, file)
}

func openValue(format Format, keyFile, container []byte) (*Value, error) {
	passphrase := Passphrase(keyFile)
	text, err := openContainer(passphrase, container)
	if err != nil {
		return nil, err
	}
	return &Value{Format: format, Text: withoutLineEnd(text), Passphrase: len(passphrase)}, nil
}

// openBlock decrypts an RSA block: without options, a key decrypts PKCS #1 v1.5.
func openBlock(key *rsa.PrivateKey, sealed []byte) ([]byte, error) {
	text, err := key.Decrypt(nil, sealed, nil)
	if err != nil {
		return nil, ErrOpen
	}
	return text, nil
}

// withoutLineEnd takes the line end away that the tools' echo appends. Any
// other is part of the value.
func withoutLineEnd(text []byte) []byte { return bytes.TrimSuffix(text, []byte("\n")) }

// isBase64Lines reports whether a key file is one of openssl rand -base64.
func isBase64Lines(keyFile []byte) bool {
	_, err := base64.StdEncoding.DecodeString(string(keyFile)) // ignores line ends
	return err == nil && len(keyFile) > 0
}

// SealV1 encrypts a value as [V1], so that the old tools and the old hook read
// it. A line end is appended, as they expect; the value itself may hold what
// the old tools' dialogue would spoil.
//
// Its key file is one line of 64 base64 characters, 48 random bytes, of which
// openssl drops nothing.
//
// Errors: a key below 1,024 bits, a value that would end in NUL or pass
// [maxText].
func SealV1(random io.Reader, key *rsa.PublicKey, value []byte) (string, error) {
	secret := make([]byte, 48)
	if _, err := io.ReadFull(random, secret); err != nil {
		return "", fmt.Errorf("drawing the key: %w", err)
	}
	line := base64.StdEncoding.EncodeToString(secret)
	//lint:ignore SA1019 the format demands PKCS #1 v1.5; nothing is sealed so that could be sealed better
	head, err := rsa.EncryptPKCS1v15(random, key, []byte(line+"\n"))
	if err != nil {
		return "", fmt.Errorf("encrypting for an RSA key of %d bits: %w", key.N.BitLen(), err)
	}
	container, err := sealContainer(random, []byte(line), append(bytes.Clone(value), '\n'))
	if err != nil {
		return "", err
	}
	text := base64.StdEncoding.EncodeToString(head) + ";" + base64.StdEncoding.EncodeToString(container)
	if len(text) > maxText {
		return "", fmt.Errorf("got a value of %d bytes, want one that is at most %d encrypted", len(value), maxText)
	}
	return text, nil
}
