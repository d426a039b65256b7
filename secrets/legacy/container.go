package legacy

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/sha256"
	"fmt"
	"io"
)

// Sizes of the container that openssl enc -aes-256-cbc -salt -pbkdf2 writes.
const (
	containerMark = "Salted__"
	saltSize      = 8
	iterations    = 100_000
	keySize       = 32
)

// maxPassphrase is how much of the first line openssl's -pass file: takes.
const maxPassphrase = 1023

// Passphrase returns what openssl's -pass file: makes of a key file: its bytes
// up to the first line end or NUL, a carriage return included, 1,023 at most.
//
// A key file of random bytes is cut by that: one in 26 leaves four bytes or
// fewer, and then the value can be found by trying.
func Passphrase(keyFile []byte) []byte {
	if at := bytes.IndexAny(keyFile, "\n\x00"); at >= 0 {
		keyFile = keyFile[:at]
	}
	return keyFile[:min(len(keyFile), maxPassphrase)]
}

// block returns the cipher and the initialization vector of a passphrase.
func block(passphrase, salt []byte) (cipher.Block, []byte, error) {
	derived, err := pbkdf2.Key(sha256.New, string(passphrase), salt, iterations, keySize+aes.BlockSize)
	if err != nil {
		return nil, nil, fmt.Errorf("deriving the key: %w", err)
	}
	b, err := aes.NewCipher(derived[:keySize])
	return b, derived[keySize:], err
}

// openContainer decrypts a container: mark, salt, AES-256-CBC with PKCS #7
// padding. Whatever is wrong with it is [ErrOpen].
func openContainer(passphrase, container []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(container, []byte(containerMark))
	if !ok || len(rest) < saltSize+aes.BlockSize || (len(rest)-saltSize)%aes.BlockSize != 0 {
		return nil, ErrOpen
	}
	b, iv, err := block(passphrase, rest[:saltSize])
	if err != nil {
		return nil, err
	}
	text := make([]byte, len(rest)-saltSize)
	cipher.NewCBCDecrypter(b, iv).CryptBlocks(text, rest[saltSize:])
	pad := int(text[len(text)-1])
	if pad < 1 || pad > aes.BlockSize || !bytes.HasSuffix(text, bytes.Repeat([]byte{byte(pad)}, pad)) {
		return nil, ErrOpen
	}
	return text[:len(text)-pad], nil
}

// sealContainer is the reverse of openContainer, with a salt from random.
func sealContainer(random io.Reader, passphrase, text []byte) ([]byte, error) {
	salt := make([]byte, saltSize)
	if _, err := io.ReadFull(random, salt); err != nil {
		return nil, fmt.Errorf("drawing the salt: %w", err)
	}
	b, iv, err := block(passphrase, salt)
	if err != nil {
		return nil, err
	}
	pad := aes.BlockSize - len(text)%aes.BlockSize
	padded := append(bytes.Clone(text), bytes.Repeat([]byte{byte(pad)}, pad)...)
	cipher.NewCBCEncrypter(b, iv).CryptBlocks(padded, padded)
	return append(append([]byte(containerMark), salt...), padded...), nil
}
