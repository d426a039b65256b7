package restapi

import (
	"time"

	"github.com/gpu-mode/kbgen/local/document"
)

func (c *call) meta() error {
	return c.ok(map[string][]string{"webhook_ips": {"127.0.0.0/8", "::1/128"}})
}

// An accessToken is what a token may read about itself, which is not its value.
type accessToken struct {
	UUID        string             `json:"uuid"`
	Scopes      []string           `json:"scopes"`
	Description string             `json:"description"`
	CreatedAt   document.Timestamp `json:"created_at"`
	ExpiresAt   document.Timestamp `json:"expires_at"`
	User        *document.Person   `json:"user"`
}

func (c *call) accessToken() error {
	return c.ok(accessToken{
		UUID: c.who.id, Scopes: append([]string{}, c.who.Scopes...), Description: c.who.Description,
		CreatedAt: c.view.Time(c.who.CreatedAt), ExpiresAt: c.view.Time(c.who.ExpiresAt), User: c.view.Person(c.who.User),
	})
}

func (c *call) user() error {
	p := c.view.Person(c.who.User)
	p.CreatedAt = new(c.view.Time(c.who.CreatedAt))
	return c.ok(p)
}

func (c *call) organizations() error {
	return listing(c, []document.Organization{c.view.Organization()}, same)
}

func (c *call) organization() error { return c.ok(c.view.Organization()) }

// A quota is one scope of the rate limit's state.
type quota struct {
	Limit    int                `json:"limit"`
	Current  int                `json:"current"`
	Reset    int                `json:"reset"` // seconds
	ResetAt  document.Timestamp `json:"reset_at"`
	Enforced bool               `json:"enforced"`
}

// rateLimit shows the organization's quota. There is no GraphQL here, so its
// quota is never used.
func (c *call) rateLimit() error {
	r := c.meter.organization()
	rest := quota{Limit: r.Limit, Current: r.Current, Reset: r.Reset, ResetAt: c.view.Time(r.end), Enforced: c.meter.enforced}
	graphQL := quota{Limit: 20_000, Reset: 300, ResetAt: c.view.Time(c.engine.Now().Add(5 * time.Minute))}
	return c.ok(map[string]any{"scopes": map[string]quota{"rest": rest, "graphql": graphQL}})
}
