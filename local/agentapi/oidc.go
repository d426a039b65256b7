package agentapi

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/gpu-mode/kbgen/local/engine"
)

// Lifetimes of tokens: what they have without a wish, and at most.
const (
	tokenLife    = 5 * time.Minute
	maxTokenLife = 2 * time.Hour
)

// Paths of what verifies the tokens, below the issuer's URL.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	KeysPath      = "/.well-known/jwks"
)

// An issuer signs tokens that say what a job is. Its key dies with the stand-in.
type issuer struct {
	signer jose.Signer
	public jose.JSONWebKeySet
}

func newIssuer() (issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return issuer{}, err
	}
	id := engine.NewToken("")[:16]
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, (&jose.SignerOptions{}).WithType("JWT"))
	public := jose.JSONWebKey{Key: key.Public(), KeyID: id, Algorithm: string(jose.RS256), Use: "sig"}
	return issuer{signer, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}}}, err
}

// wishes is the body of a request for a token.
type wishes struct {
	Audience       string   `json:"audience"`
	Lifetime       int      `json:"lifetime"` // seconds
	Claims         []string `json:"claims"`
	AWSSessionTags []string `json:"aws_session_tags"`
	SubjectClaim   string   `json:"subject_claim"`
}

// issueToken answers with a token for the job that asks.
//
// Source: Buildkite's documentation of OIDC tokens, claims and optional claims.
func (a *API) issueToken(c *call, w wishes) (any, error) {
	life := time.Duration(w.Lifetime) * time.Second
	switch {
	case a.opts.Issuer == "":
		return nil, unusable("kblocal does not implement OIDC tokens without an issuer's URL")
	case len(w.AWSSessionTags) > 0 || w.SubjectClaim != "":
		return nil, unusable("kblocal does not implement AWS session tags and subject claims")
	case life < 0 || life > maxTokenLife:
		return nil, unusable("lifetime: got %d, want 1 to %d seconds", w.Lifetime, int(maxTokenLife.Seconds()))
	case life == 0:
		life = tokenLife
	}
	subject, claims, optional, err := a.claims(c.job)
	if err != nil {
		return nil, err
	}
	for _, name := range w.Claims {
		value, ok := optional[name]
		if !ok {
			return nil, unusable("claims: got %q, have %s", name, strings.Join(slices.Sorted(maps.Keys(optional)), ", "))
		}
		claims[name] = value
	}
	audience := cmp.Or(w.Audience, a.opts.Issuer+"/"+a.engine.Organization())
	now := a.engine.Now()
	key, err := a.issuer()
	if err != nil {
		return nil, fmt.Errorf("making the key: %w", err)
	}
	token, err := jwt.Signed(key.signer).Claims(jwt.Claims{
		Issuer: a.opts.Issuer, Audience: jwt.Audience{audience}, Subject: subject,
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(life)),
	}).Claims(claims).Serialize()
	if err != nil {
		return nil, fmt.Errorf("signing a token: %w", err)
	}
	return map[string]string{"token": token}, nil
}

// claims says what a job is: who it is, what every token says of it, and what
// one says only if asked to.
func (a *API) claims(j engine.Job) (subject string, always, optional map[string]any, err error) {
	b, err := a.engine.BuildByID(j.BuildID)
	if err != nil {
		return "", nil, nil, err
	}
	p, err := a.engine.Pipeline(j.Pipeline)
	if err != nil {
		return "", nil, nil, err
	}
	agent, err := a.engine.Agent(j.AgentID)
	if err != nil {
		return "", nil, nil, err
	}
	ref := "refs/heads/" + b.Branch
	always = map[string]any{
		"organization_slug": a.engine.Organization(), "pipeline_slug": j.Pipeline, "build_number": b.Number, "build_branch": b.Branch,
		"build_commit": b.Commit, "step_key": j.StepKey, "job_id": j.ID, "agent_id": j.AgentID, "build_source": b.Source, "runner_environment": "self-hosted",
	}
	optional = map[string]any{
		"organization_id": engine.OrganizationID, "pipeline_id": p.ID, "build_id": b.ID,
		"cluster_id": engine.ClusterID, "cluster_name": engine.ClusterName, "queue_key": agent.Queue,
	}
	for _, q := range a.engine.Queues() {
		if q.Key == agent.Queue {
			optional["queue_id"] = q.ID
		}
	}
	for _, tag := range agent.Tags {
		key, value, _ := strings.Cut(tag, "=")
		optional["agent_tag:"+key] = value
	}
	subject = fmt.Sprintf("organization:%s:pipeline:%s:ref:%s:commit:%s:step:%s", a.engine.Organization(), j.Pipeline, ref, b.Commit, j.StepKey)
	return subject, always, optional, nil
}

// ServeDiscovery says where the keys are, at [DiscoveryPath].
func (a *API) ServeDiscovery(w http.ResponseWriter, _ *http.Request) {
	writeOpenID(w, map[string]any{
		"issuer": a.opts.Issuer, "jwks_uri": a.opts.Issuer + KeysPath,
		"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{string(jose.RS256)},
	})
}

// ServeKeys serves what the tokens are verified with, at [KeysPath].
func (a *API) ServeKeys(w http.ResponseWriter, _ *http.Request) {
	key, err := a.issuer()
	if err != nil {
		http.Error(w, `{"message": "no key could be made"}`, http.StatusInternalServerError)
		return
	}
	writeOpenID(w, key.public)
}

func writeOpenID(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // who went away needs no answer
}
