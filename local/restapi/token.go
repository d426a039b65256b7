package restapi

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gpu-mode/kbgen/local/engine"
)

// A Token lets a user in.
type Token struct {
	Value       string
	Scopes      []string      // nil: all of [Scopes]
	User        engine.Person // builds are created by; an empty ID is made of the name
	Description string
	CreatedAt   time.Time // zero: when the handler was made
	ExpiresAt   time.Time // zero: never
}

// Scopes are all scopes that an endpoint here asks for.
var Scopes = []string{
	"read_accounts", "read_agents", "write_agents", "read_artifacts", "write_artifacts",
	"read_build_logs", "read_builds", "write_builds", "read_clusters", "write_clusters",
	"read_job_env", "read_organizations", "read_pipelines", "write_pipelines", "read_user",
}

// credential is a token as it is looked up: by the hash of its value.
type credential struct {
	Token // with the defaults
	sum   [sha256.Size]byte
	id    string
}

func credentials(tokens []Token) []credential {
	out := make([]credential, 0, len(tokens))
	for _, t := range tokens {
		if t.Value == "" {
			continue
		}
		c := credential{Token: t, sum: sha256.Sum256([]byte(t.Value)), id: uuid.NewString()}
		c.Value = ""
		if c.Scopes == nil {
			c.Scopes = Scopes
		}
		c.User.Name = cmp.Or(c.User.Name, "kblocal")
		c.User.ID = cmp.Or(c.User.ID, uuid.NewSHA1(uuid.NameSpaceURL, []byte("kblocal:user:"+c.User.Name)).String())
		if c.CreatedAt.IsZero() {
			c.CreatedAt = time.Now()
		}
		out = append(out, c)
	}
	return out
}

func (c *credential) has(scope string) bool { return slices.Contains(c.Scopes, scope) }

// authenticate finds the request's token. It compares all tokens, even after a
// match, so that the time it takes reveals nothing.
func (c *call) authenticate() bool {
	scheme, value, _ := strings.Cut(c.r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(value)))
	c.who = nil
	for i := range c.tokens {
		if t := &c.tokens[i]; subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 {
			c.who = t
		}
	}
	expired := c.who != nil && !c.who.ExpiresAt.IsZero() && !c.engine.Now().Before(c.who.ExpiresAt)
	if !strings.EqualFold(scheme, "Bearer") || expired {
		c.who = nil
	}
	return c.who != nil
}
