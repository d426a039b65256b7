package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"

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
	for _, address := range []struct {
		to    *string
		usual string
	}{{&p.AuthURL, k.auth}, {&p.TokenURL, k.token}, {&p.UserURL, k.user}} {
		if *address.to == "" {
			*address.to = address.usual
		}
	}
	return nil
}

func (i *Identity) provider(name string) (*Provider, bool) {
	for n := range i.o.Providers {
		if i.o.Providers[n].Name == name {
			return &i.o.Providers[n], true
		}
	}
	return nil, false
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

// trouble logs and answers what account returns.
func (i *Identity) trouble(w http.ResponseWriter, r *http.Request, p *Provider, err error) {
	i.o.Log.Warn("log-in", "provider", p.Name, "error", err)
	status := http.StatusBadGateway
	if errors.Is(err, errCode) {
		status = http.StatusBadRequest
	}
	i.problem(w, r, status, err.Error())
}

// account exchanges a code and asks whose it is. The provider's token is used for
// that and forgotten.
//
// Errors: errCode; they quote nothing that the provider sent but its error's name.
func (i *Identity) account(ctx context.Context, p *Provider, redirect, code string, opts ...oauth2.AuthCodeOption) (account, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, i.o.Client)
	token, err := p.config(redirect).Exchange(ctx, code, opts...)
	if err != nil {
		var refused *oauth2.RetrieveError
		if errors.As(err, &refused) {
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
