package identity

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"
)

var encoding = base64.RawURLEncoding.Strict()

// errState is a state that we did not make, or not for this browser, or too long
// ago, or that was used.
var errState = errors.New("this log-in has expired or was begun elsewhere; begin again")

// stateLife is how long somebody may take at the provider.
const stateLife = 10 * time.Minute

// A state is what a log-in that has begun takes with it through the provider.
type state struct {
	Provider string `json:"p"`
	Browser  string `json:"b"` // digest of the browser's nonce
	Next     string `json:"n"` // local path to go on to
	Until    int64  `json:"u"` // Unix seconds
}

// sign writes a state that only we can have made.
func (i *Identity) sign(s state) string {
	body, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and a number
	}
	return encoding.EncodeToString(body) + "." + encoding.EncodeToString(i.mac("state", body))
}

// verify reads a state for the browser that holds nonce.
//
// Errors: errState.
func (i *Identity) verify(text, provider, nonce string) (state, error) {
	var s state
	left, right, found := strings.Cut(text, ".")
	body, err := encoding.DecodeString(left)
	sum, err2 := encoding.DecodeString(right)
	// A decoder passes over line ends: the same state would count again, spelt
	// otherwise.
	if !found || len(text) > 4096 || strings.ContainsAny(text, "\r\n") || err != nil || err2 != nil || !hmac.Equal(sum, i.mac("state", body)) || json.Unmarshal(body, &s) != nil {
		return state{}, errState
	}
	until := time.Unix(s.Until, 0)
	if s.Provider != provider || nonce == "" || !hmac.Equal([]byte(s.Browser), []byte(i.browser(nonce))) || i.o.Now().After(until) || !i.used.first(text, until, i.o.Now()) {
		return state{}, errState
	}
	return s, nil
}

func (i *Identity) mac(purpose string, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, i.key(purpose))
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// browser is the part of a nonce that may be seen on its way.
func (i *Identity) browser(nonce string) string {
	return encoding.EncodeToString(i.mac("browser", []byte(nonce)))
}

// verifier is PKCE's secret. It is made from the browser's nonce, and never leaves
// this server but to the provider.
func (i *Identity) verifier(nonce string) string {
	return encoding.EncodeToString(i.mac("pkce", []byte(nonce)))
}

// seal encrypts a value for a cookie.
func (i *Identity) seal(purpose string, v any) string {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers
	}
	return encoding.EncodeToString(i.aead(purpose).Seal(nil, nil, body, nil))
}

// open decrypts what seal made.
func (i *Identity) open(purpose, text string, into any) error {
	body, err := encoding.DecodeString(text)
	if err == nil {
		body, err = i.aead(purpose).Open(nil, nil, body, nil)
	}
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return errState
	}
	return nil
}

func (i *Identity) aead(purpose string) cipher.AEAD {
	block, err := aes.NewCipher(i.key("seal " + purpose))
	if err != nil {
		panic(err) // 32 bytes
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // of AES
	}
	return aead
}

func newNonce() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return encoding.EncodeToString(b[:])
}

// used remembers which states came back, on this instance: on another one a state
// still needs the browser's cookie, which its first use has removed.
type used struct {
	mu   sync.Mutex
	seen map[[sha256.Size]byte]time.Time
}

// maxUsed bounds the memory; beyond it log-ins wait for older ones to expire.
const maxUsed = 100_000

func (u *used) first(text string, until, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen == nil {
		u.seen = map[[sha256.Size]byte]time.Time{}
	}
	key := sha256.Sum256([]byte(text))
	if _, again := u.seen[key]; again {
		return false
	}
	if len(u.seen) >= maxUsed {
		for k, t := range u.seen {
			if now.After(t) {
				delete(u.seen, k)
			}
		}
		if len(u.seen) >= maxUsed {
			return false
		}
	}
	u.seen[key] = until
	return true
}
