package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/refused"
)

// An asker is the job that asks, as far as it is believed.
type asker struct {
	secrets.Claims
	ID string // "" where nothing proves it
}

// A policy says what is believed of a job that asks.
type policy interface {
	// Identify returns the job that a token stands for. Its errors are refusals.
	Identify(ctx context.Context, token string) (asker, error)
	// Allow reports whether a job may have a secret under a name, now.
	Allow(s *secrets.Secret, name string, now time.Time, j asker) error
}

// oidcPolicy believes tokens that an issuer has signed for an audience.
type oidcPolicy struct {
	verifier      *oidc.IDTokenVerifier
	organizations []string
}

// defaultIssuer is Buildkite's. Its keys lie at KeysPath below it.
const (
	defaultIssuer = "https://agent.buildkite.com"
	keysPath      = "/.well-known/jwks"
)

// newOIDC verifies with the issuer's keys, which are fetched when the first
// token comes and again when one is signed by another. Only jobs of the
// organizations, named by UUID, are believed: all of Buildkite signs with the
// same keys.
func newOIDC(issuer, audience string, organizations []string, now func() time.Time) *oidcPolicy {
	keys := oidc.NewRemoteKeySet(context.Background(), issuer+keysPath)
	return &oidcPolicy{oidc.NewVerifier(issuer, keys, &oidc.Config{ClientID: audience, SupportedSigningAlgs: []string{oidc.RS256}, Now: now}), organizations}
}

// fetchLimit bounds the fetch of the issuer's keys.
const fetchLimit = 10 * time.Second

// Identify verifies the token.
func (p *oidcPolicy) Identify(ctx context.Context, token string) (asker, error) {
	if token == "" {
		return asker{}, &refused.Refusal{Reason: refused.Unproved, Detail: "got no token, want one of the job: buildkite-agent oidc request-token"}
	}
	ctx, stop := context.WithTimeout(ctx, fetchLimit)
	defer stop()
	id, err := p.verifier.Verify(ctx, token)
	expired := new(oidc.TokenExpiredError)
	switch {
	case errors.As(err, &expired):
		return asker{}, &refused.Refusal{Reason: refused.Unproved, Detail: "the token has expired"}
	case err != nil && ctx.Err() != nil:
		return asker{}, &refused.Refusal{Reason: refused.Busy, Detail: "the issuer's keys could not be fetched in time"}
	case err != nil: // the library's texts quote claims of the token, never its signature
		return asker{}, &refused.Refusal{Reason: refused.Unproved, Detail: "the token is not believed: " + text.Shorten(err.Error(), 200)}
	}
	var c struct {
		Organization string `json:"organization_id"`
		Pipeline     string `json:"pipeline_id"`
		Queue        string `json:"queue_id"`
		Step         string `json:"step_key"`
		Branch       string `json:"build_branch"`
		Tag          string `json:"build_tag"`
		Source       string `json:"build_source"`
		Job          string `json:"job_id"`
	}
	if err := id.Claims(&c); err != nil {
		return asker{}, &refused.Refusal{Reason: refused.Unproved, Detail: "the token's claims cannot be read"}
	}
	if c.Organization == "" || c.Pipeline == "" {
		return asker{}, &refused.Refusal{Reason: refused.Unproved, Detail: "the token lacks organization_id or pipeline_id: request it with --claim"}
	}
	if !slices.Contains(p.organizations, c.Organization) {
		return asker{}, &refused.Refusal{Reason: refused.WrongOrganization, Detail: "the job is of an organization that this node does not serve"}
	}
	ref := "refs/heads/" + c.Branch
	if c.Tag != "" {
		ref = "refs/tags/" + c.Tag
	}
	return asker{secrets.Claims{Organization: c.Organization, Pipeline: c.Pipeline, Queue: c.Queue, Step: c.Step, Ref: ref, Source: c.Source}, c.Job}, nil
}

// Allow compares the envelope's bindings with the token's claims.
func (p *oidcPolicy) Allow(s *secrets.Secret, name string, now time.Time, j asker) error {
	return s.Allow(name, now, j.Claims)
}

// hostPolicy is the policy of a node without tokens: its agent takes jobs of these
// pipelines only (the hook pre-bootstrap refuses others), and whoever asks is
// one of them. Which one is not known. So a secret is handed out only if every
// one of them may have it, and none that is bound to more than pipelines.
//
// That trusts what Buildkite tells the agent of a job.
type hostPolicy struct {
	Organization string   // UUID
	Pipelines    []string // UUIDs
}

// Identify knows the organization and nothing more.
func (p *hostPolicy) Identify(context.Context, string) (asker, error) {
	return asker{Claims: secrets.Claims{Organization: p.Organization}}, nil
}

// Allow reports whether all that may run here may have it.
func (p *hostPolicy) Allow(s *secrets.Secret, name string, now time.Time, j asker) error {
	if len(s.Queues)+len(s.Steps)+len(s.Refs)+len(s.Sources) > 0 {
		return &refused.Refusal{Name: name, Reason: refused.Unproved, Detail: "it is bound to queues, steps, refs or sources, which nothing proves on a node without tokens"}
	}
	for _, pipeline := range p.Pipelines {
		c := j.Claims
		c.Pipeline = pipeline
		if err := s.Allow(name, now, c); err != nil {
			return err
		}
	}
	if len(p.Pipelines) == 0 {
		return &refused.Refusal{Name: name, Reason: refused.Unproved, Detail: "the node names no pipelines"}
	}
	return nil
}
