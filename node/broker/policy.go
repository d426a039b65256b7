package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/refused"
)

// Reasons that a broker adds to those of secrets.
const (
	Unproved = refused.Unproved
	Busy     = refused.Busy
)

// A Job is who asks, as far as it is believed.
type Job struct {
	secrets.Claims
	ID    string // "" where nothing proves it
	Agent string
}

// A Policy says what is believed of a job that asks.
type Policy interface {
	// Identify returns the job that a token stands for. Its errors are refusals.
	Identify(ctx context.Context, token string) (Job, error)
	// Allow reports whether a job may have a secret under a name, now.
	Allow(s *secrets.Secret, name string, now time.Time, j Job) error
	// AllowOld reports whether a job may have values in the old formats, which
	// are bound to nothing: whether pipelines names the job's own.
	AllowOld(pipelines []string, j Job) error
}

// OIDC believes tokens that an issuer has signed for an audience.
type OIDC struct {
	verifier      *oidc.IDTokenVerifier
	organizations []string
}

// Audience is what the tokens are for when nobody says otherwise.
const Audience = client.Audience

// Issuer is Buildkite's. Its keys lie at KeysPath below it.
const (
	Issuer   = "https://agent.buildkite.com"
	KeysPath = "/.well-known/jwks"
)

// NewOIDC verifies with the issuer's keys, which are fetched when the first
// token comes and again when one is signed by another. Only jobs of the
// organizations, named by UUID, are believed: all of Buildkite signs with the
// same keys.
func NewOIDC(issuer, audience string, organizations []string, now func() time.Time) *OIDC {
	keys := oidc.NewRemoteKeySet(context.Background(), issuer+KeysPath)
	return &OIDC{oidc.NewVerifier(issuer, keys, &oidc.Config{ClientID: audience, SupportedSigningAlgs: []string{oidc.RS256}, Now: now}), organizations}
}

// fetchLimit bounds the fetch of the issuer's keys.
const fetchLimit = 10 * time.Second

// Identify verifies the token.
func (p *OIDC) Identify(ctx context.Context, token string) (Job, error) {
	if token == "" {
		return Job{}, &secrets.Refusal{Reason: Unproved, Detail: "got no token, want one of the job: buildkite-agent oidc request-token"}
	}
	ctx, stop := context.WithTimeout(ctx, fetchLimit)
	defer stop()
	id, err := p.verifier.Verify(ctx, token)
	expired := new(oidc.TokenExpiredError)
	switch {
	case errors.As(err, &expired):
		return Job{}, &secrets.Refusal{Reason: Unproved, Detail: "the token has expired"}
	case err != nil && ctx.Err() != nil:
		return Job{}, &secrets.Refusal{Reason: Busy, Detail: "the issuer's keys could not be fetched in time"}
	case err != nil: // the library's texts quote claims of the token, never its signature
		return Job{}, &secrets.Refusal{Reason: Unproved, Detail: "the token is not believed: " + cut(err.Error())}
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
		Agent        string `json:"agent_id"`
	}
	if err := id.Claims(&c); err != nil {
		return Job{}, &secrets.Refusal{Reason: Unproved, Detail: "the token's claims cannot be read"}
	}
	if c.Organization == "" || c.Pipeline == "" {
		return Job{}, &secrets.Refusal{Reason: Unproved, Detail: "the token lacks organization_id or pipeline_id: request it with --claim"}
	}
	if !slices.Contains(p.organizations, c.Organization) {
		return Job{}, &secrets.Refusal{Reason: secrets.WrongOrganization, Detail: "the job is of an organization that this node does not serve"}
	}
	ref := "refs/heads/" + c.Branch
	if c.Tag != "" {
		ref = "refs/tags/" + c.Tag
	}
	return Job{secrets.Claims{Organization: c.Organization, Pipeline: c.Pipeline, Queue: c.Queue, Step: c.Step, Ref: ref, Source: c.Source}, c.Job, c.Agent}, nil
}

// Allow compares the envelope's bindings with the token's claims.
func (p *OIDC) Allow(s *secrets.Secret, name string, now time.Time, j Job) error {
	return s.Allow(name, now, j.Claims)
}

// AllowOld looks for the job's pipeline.
func (p *OIDC) AllowOld(pipelines []string, j Job) error {
	if !slices.Contains(pipelines, j.Pipeline) {
		return noOldFormats
	}
	return nil
}

var noOldFormats = &secrets.Refusal{Reason: secrets.WrongPipeline, Detail: "this node opens old formats for other pipelines only"}

func cut(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// Host is the policy of a node without tokens: its agent takes jobs of these
// pipelines only (the hook pre-bootstrap refuses others), and whoever asks is
// one of them. Which one is not known. So a secret is handed out only if every
// one of them may have it, and none that is bound to more than pipelines.
//
// That trusts what Buildkite tells the agent of a job.
type Host struct {
	Organization string   // UUID
	Pipelines    []string // UUIDs
}

// Identify knows the organization and nothing more.
func (p *Host) Identify(context.Context, string) (Job, error) {
	return Job{Claims: secrets.Claims{Organization: p.Organization}}, nil
}

// Allow reports whether all that may run here may have it.
func (p *Host) Allow(s *secrets.Secret, name string, now time.Time, j Job) error {
	if len(s.Queues)+len(s.Steps)+len(s.Refs)+len(s.Sources) > 0 {
		return &secrets.Refusal{Name: name, Reason: Unproved, Detail: "it is bound to queues, steps, refs or sources, which nothing proves on a node without tokens"}
	}
	for _, pipeline := range p.Pipelines {
		c := j.Claims
		c.Pipeline = pipeline
		if err := s.Allow(name, now, c); err != nil {
			return err
		}
	}
	if len(p.Pipelines) == 0 {
		return &secrets.Refusal{Name: name, Reason: Unproved, Detail: "the node names no pipelines"}
	}
	return nil
}

// AllowOld reports whether all that may run here may have them.
func (p *Host) AllowOld(pipelines []string, _ Job) error {
	for _, own := range p.Pipelines {
		if !slices.Contains(pipelines, own) {
			return noOldFormats
		}
	}
	return nil
}
