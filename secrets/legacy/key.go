package legacy

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// ParsePrivateKey reads an RSA key in PEM, PKCS #8 or PKCS #1, as
// secrets.private.key is.
//
// Errors say what the text is instead; none quotes it.
func ParsePrivateKey(text []byte) (*rsa.PrivateKey, error) {
	b, _ := pem.Decode(text)
	if b == nil {
		return nil, errors.New("got no PEM block, want an RSA private key")
	}
	switch b.Type {
	case "RSA PRIVATE KEY":
		key, err := x509.ParsePKCS1PrivateKey(b.Bytes)
		if err != nil {
			return nil, errors.New("got a PEM block RSA PRIVATE KEY that is none")
		}
		return key, nil
	case "PRIVATE KEY":
		key, err := x509.ParsePKCS8PrivateKey(b.Bytes)
		if err != nil {
			return nil, errors.New("got a PEM block PRIVATE KEY that is none")
		}
		if key, ok := key.(*rsa.PrivateKey); ok {
			return key, nil
		}
		return nil, fmt.Errorf("got a %T, want an RSA private key", key)
	}
	return nil, fmt.Errorf("got a PEM block %.40q, want an RSA private key", b.Type)
}

// ParsePublicKey reads an RSA key in PEM, PKIX or PKCS #1, as
// secrets.public.key is.
func ParsePublicKey(text []byte) (*rsa.PublicKey, error) {
	b, _ := pem.Decode(text)
	if b == nil {
		return nil, errors.New("got no PEM block, want an RSA public key")
	}
	switch b.Type {
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(b.Bytes)
	case "PUBLIC KEY":
		key, err := x509.ParsePKIXPublicKey(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading the public key: %w", err)
		}
		if key, ok := key.(*rsa.PublicKey); ok {
			return key, nil
		}
		return nil, fmt.Errorf("got a %T, want an RSA public key", key)
	}
	return nil, fmt.Errorf("got a PEM block %.40q, want an RSA public key", b.Type)
}
