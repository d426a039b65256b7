package identity

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/gpu-mode/kbgen/schema/text"
)

// A Provider is where people have their accounts. Both that we know take PKCE with
// S256.
type Provider struct {
	Name         string // github or discord
	ClientID     string
	ClientSecret string

	// Where it is; "" is the provider's own address.
	AuthURL, TokenURL, UserURL string
}

// known are the providers' addresses and what they must let us read: who it is.
var known = map[string]struct {
	auth, token, user string
	scopes            []string
}{
	"github":  {"https://github.com/login/oauth/authorize", "https://github.com/login/oauth/access_token", "https://api.github.com/user", nil},
	"discord": {"https://discord.com/oauth2/authorize", "https://discord.com/api/oauth2/token", "https://discord.com/api/users/@me", []string{"identify"}},
}

func (p *Provider) complete() error {
	k, found := known[p.Name]
	if !found {
		return fmt.Errorf("log-in provider: got %q, want github or discord", p.Name)
	}
	if p.ClientID == "" || p.ClientSecret == "" {
		return fmt.Errorf("log-in provider %s: want a client id and its secret", p.Name)
	}
	p.AuthURL, p.TokenURL, p.UserURL = cmp.Or(p.AuthURL, k.auth), cmp.Or(p.TokenURL, k.token), cmp.Or(p.UserURL, k.user)
	return nil
}

func (i *Identity) provider(name string) (*Provider, bool) {
	at := slices.IndexFunc(i.o.Providers, func(p Provider) bool { return p.Name == name })
	if at < 0 {
		return nil, false
	}
	return &i.o.Providers[at], true
}

func (p *Provider) config(redirect string) *oauth2.Config {
	return &oauth2.Config{ClientID: p.ClientID, ClientSecret: p.ClientSecret, RedirectURL: redirect, Scopes: known[p.Name].scopes,
		Endpoint: oauth2.Endpoint{AuthURL: p.AuthURL, TokenURL: p.TokenURL, AuthStyle: oauth2.AuthStyleInParams}}
}

// An account is somebody's at a provider.
type account struct{ id, name string }

var digits = regexp.MustCompile(`^[1-9][0-9]{0,19}$`)

// errCode is a code that a provider does not know, or not any more.
var errCode = errors.New("the code was not taken")

// account returns whose account the browser brings a code for.
//
// Errors: [*refusal]; they quote nothing that the provider sent but its error's name.
func (i *Identity) account(r *http.Request, p *Provider, redirect string, opts ...oauth2.AuthCodeOption) (account, error) {
	if problem := r.FormValue("error"); problem != "" {
		return account{}, &refusal{http.StatusForbidden, p.Name + " says: " + text.Line(problem, 60)}
	}
	code := r.FormValue("code")
	if code == "" || len(code) > 2048 {
		return account{}, &refusal{http.StatusBadRequest, "code: want what " + p.Name + " sends"}
	}
	who, err := i.exchange(r.Context(), p, redirect, code, opts...)
	if err != nil {
		i.o.Log.Warn("log-in", "provider", p.Name, "error", err)
		status := http.StatusBadGateway
		if errors.Is(err, errCode) {
			status = http.StatusBadRequest
		}
		return account{}, &refusal{status, err.Error()}
	}
	return who, nil
}

// exchange exchanges a code and asks whose it is. The provider's token is used for
// that and forgotten.
//
// Errors: errCode.
func (i *Identity) exchange(ctx context.Context, p *Provider, redirect, code string, opts ...oauth2.AuthCodeOption) (account, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, i.o.Client)
	token, err := p.config(redirect).Exchange(ctx, code, opts...)
	if err != nil {
		if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
			return account{}, fmt.Errorf("%s: %w: %s", p.Name, errCode, text.Line(refused.ErrorCode, 60))
		}
		return account{}, fmt.Errorf("asking %s for a token did not work", p.Name)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.UserURL, nil)
	if err != nil {
		return account{}, fmt.Errorf("asking %s who it is: %w", p.Name, err)
	}
	token.SetAuthHeader(req)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "kbserve")
	resp, err := i.o.Client.Do(req)
	if err != nil {
		return account{}, fmt.Errorf("asking %s who it is did not work", p.Name)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode != http.StatusOK {
		return account{}, fmt.Errorf("asking %s who it is: got status %d, want 200", p.Name, resp.StatusCode)
	}
	return readAccount(p.Name, body)
}

// readAccount reads a provider's description of a user: GitHub's id is a number,
// Discord's a string.
func readAccount(provider string, body []byte) (account, error) {
	var answer struct {
		ID         json.RawMessage `json:"id"`
		Login      string          `json:"login"`
		Username   string          `json:"username"`
		GlobalName string          `json:"global_name"`
	}
	bad := fmt.Errorf("asking %s who it is: got no id that can be used", provider)
	if json.Unmarshal(body, &answer) != nil {
		return account{}, bad
	}
	id := string(answer.ID)
	if unquoted, err := strconv.Unquote(id); err == nil {
		id = unquoted
	}
	if !digits.MatchString(id) {
		return account{}, bad
	}
	for _, name := range []string{answer.Login, answer.GlobalName, answer.Username, id} {
		if name = text.Line(name, 100); name != "" {
			return account{id, name}, nil
		}
	}
	return account{}, bad
}

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

// verify reads a sealed state for the browser that holds nonce.
//
// Errors: errState.
func (i *Identity) verify(text, provider, nonce string) (state, error) {
	var s state
	// A decoder passes over line ends: the same state would count again, spelt
	// otherwise.
	if len(text) > 4096 || strings.ContainsAny(text, "\r\n") || i.open("state", text, &s) != nil {
		return state{}, errState
	}
	until := time.Unix(s.Until, 0)
	if s.Provider != provider || nonce == "" || !hmac.Equal([]byte(s.Browser), []byte(i.browser(nonce))) || i.o.Now().After(until) || !i.used.first(text, until, i.o.Now()) {
		return state{}, errState
	}
	return s, nil
}

func (i *Identity) mac(purpose, nonce string) string {
	mac := hmac.New(sha256.New, i.key(purpose))
	mac.Write([]byte(nonce))
	return encoding.EncodeToString(mac.Sum(nil))
}

// browser is the part of a nonce that may be seen on its way.
func (i *Identity) browser(nonce string) string { return i.mac("browser", nonce) }

// verifier is PKCE's secret. It is made from the browser's nonce, and never leaves
// this server but to the provider.
func (i *Identity) verifier(nonce string) string { return i.mac("pkce", nonce) }

// seal encrypts a value for a cookie or an address: only we can have made it.
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
		maps.DeleteFunc(u.seen, func(_ [sha256.Size]byte, until time.Time) bool { return now.After(until) })
		if len(u.seen) >= maxUsed {
			return false
		}
	}
	u.seen[key] = until
	return true
}
