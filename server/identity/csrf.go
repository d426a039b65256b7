package identity

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// CSRFField is the form field and CSRFHeader the header that carries a token.
const (
	CSRFField  = "csrf"
	CSRFHeader = "X-CSRF-Token"
)

// ErrCSRF is a request that one of our own pages did not send.
var ErrCSRF = errors.New("this form is too old or was not ours; load the page again")

// CSRFToken returns a token for the forms of a page; "" for somebody who is not
// logged in. It differs each time, so that a compressed page does not tell it.
func (i *Identity) CSRFToken(r *http.Request) string { return i.token(i.cookie(r, sessionCookie)) }

// CheckCSRF reports whether a request that changes something was sent by a page of
// ours that its user saw: by where the browser says it comes from, and by its token.
// It reads the form of the request.
//
// Errors: [ErrCSRF].
func (i *Identity) CheckCSRF(r *http.Request) error {
	return i.checkToken(r, i.cookie(r, sessionCookie))
}

// token makes a token for whoever holds a cookie.
func (i *Identity) token(cookie string) string {
	if cookie == "" {
		return ""
	}
	nonce := newNonce()
	return nonce + "." + encoding.EncodeToString(i.mac("csrf", []byte(nonce), []byte{0}, []byte(cookie)))
}

func (i *Identity) checkToken(r *http.Request, cookie string) error {
	if err := i.origin.Check(r); err != nil {
		return fmt.Errorf("%w (sent from elsewhere)", ErrCSRF)
	}
	token := r.Header.Get(CSRFHeader)
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); token == "" && (kind == "application/x-www-form-urlencoded" || kind == "multipart/form-data") {
		token = r.PostFormValue(CSRFField)
	}
	nonce, sum, _ := strings.Cut(token, ".")
	got, err := encoding.DecodeString(sum)
	if cookie == "" || err != nil || !hmac.Equal(got, i.mac("csrf", []byte(nonce), []byte{0}, []byte(cookie))) {
		return ErrCSRF
	}
	return nil
}
