package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	gopipeline "github.com/buildkite/go-pipeline"
	"github.com/buildkite/go-pipeline/warning"

	"github.com/gpu-mode/kbgen/local/steps"
)

// A Pipeline is what builds are made of.
type Pipeline struct {
	ID            string
	Slug          string
	Name          string
	Description   string
	Repository    string // a URL or path; jobs see it as BUILDKITE_REPO
	DefaultBranch string // "main" when empty
	Configuration string // YAML: the steps of every new build
	Env           map[string]string
	SkipCheckout  bool // jobs start in an empty directory unless a step says otherwise
	CheckoutPath  string
	CreatedAt     time.Time
}

type pipeline struct {
	Pipeline
	builds int // the last build number
}

var slugPattern = regexp.MustCompile(`^[a-zA-Z0-9]+[a-zA-Z0-9-]*$`)
var notSlug = regexp.MustCompile(`[^a-z0-9]+`)

// CreatePipeline adds a pipeline; an empty slug is made of the name.
func (e *Engine) CreatePipeline(p Pipeline) (Pipeline, error) {
	p.Slug = cmp.Or(p.Slug, strings.Trim(notSlug.ReplaceAllString(strings.ToLower(p.Name), "-"), "-"))
	p.Name = cmp.Or(p.Name, p.Slug)
	p.DefaultBranch = cmp.Or(p.DefaultBranch, "main")
	if len(p.Slug) > 100 || !slugPattern.MatchString(p.Slug) {
		return Pipeline{}, &Error{Kind: Invalid, Message: "Validation failed", Fields: []FieldError{{Field: "slug", Code: "invalid"}}}
	}
	if err := errors.Join(checkEnv(p.Env), checkConfiguration(p.Configuration)); err != nil {
		return Pipeline{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.pipelines[p.Slug]; ok {
		return Pipeline{}, &Error{Kind: Invalid, Message: "Validation failed", Fields: []FieldError{{Field: "slug", Code: "already_exists"}}}
	}
	p.ID, p.CreatedAt = newID(), e.now()
	e.pipelines[p.Slug] = &pipeline{Pipeline: p}
	return p, nil
}

// UpdatePipeline changes a pipeline through fn; its slug and id stay.
func (e *Engine) UpdatePipeline(slug string, fn func(*Pipeline)) (Pipeline, error) {
	return query(e, e.findPipeline, slug, func(p *pipeline) (Pipeline, error) {
		changed := p.Pipeline
		fn(&changed)
		if err := errors.Join(checkEnv(changed.Env), checkConfiguration(changed.Configuration)); err != nil {
			return Pipeline{}, err
		}
		changed.ID, changed.Slug, changed.CreatedAt = p.ID, p.Slug, p.CreatedAt
		p.Pipeline = changed
		return changed, nil
	})
}

// DeletePipeline removes a pipeline and forgets its builds, which must have
// ended.
func (e *Engine) DeletePipeline(slug string) error {
	return change(e, e.findPipeline, slug, func(*pipeline) error {
		for _, b := range e.builds {
			if b.Pipeline == slug && !b.Over() {
				return Refuse(Invalid, "Pipeline %s has unfinished builds", slug)
			}
		}
		e.builds = slices.DeleteFunc(e.builds, func(b *build) bool {
			if b.Pipeline == slug {
				delete(e.byID, b.ID)
				for _, j := range b.jobs {
					delete(e.jobs, j.ID)
				}
				return true
			}
			return false
		})
		delete(e.pipelines, slug)
		return nil
	})
}

// Pipeline returns one pipeline.
func (e *Engine) Pipeline(slug string) (Pipeline, error) {
	return query(e, e.findPipeline, slug, func(p *pipeline) (Pipeline, error) { return p.Pipeline, nil })
}

func (e *Engine) findPipeline(slug string) (*pipeline, error) {
	return lookUp(e.pipelines, slug, "No pipeline found")
}

// Pipelines returns all pipelines, newest first.
func (e *Engine) Pipelines() []Pipeline {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]Pipeline, 0, len(e.pipelines))
	for _, p := range e.pipelines {
		out = append(out, p.Pipeline)
	}
	slices.SortFunc(out, func(a, b Pipeline) int { return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Slug, b.Slug)) })
	return out
}

// checkEnv refuses variables that no process can be started with.
func checkEnv(env map[string]string) error {
	if err := steps.CheckEnv(env); err != nil {
		return &Error{Kind: Invalid, Message: "env: " + err.Error(), Fields: []FieldError{{Field: "env", Code: "invalid"}}}
	}
	return nil
}

// checkConfiguration refuses steps that no build could start with.
func checkConfiguration(yaml string) error {
	if strings.TrimSpace(yaml) == "" {
		return &Error{Kind: Invalid, Message: "Validation failed", Fields: []FieldError{{Field: "configuration", Code: "missing"}}}
	}
	if _, err := parseConfiguration(yaml, nil); err != nil {
		return &Error{Kind: Invalid, Message: err.Error(), Fields: []FieldError{{Field: "configuration", Code: "invalid"}}}
	}
	return nil
}

// environment looks variables up for interpolation.
type environment map[string]string

func (m environment) Get(name string) (string, bool) { v, ok := m[name]; return v, ok }
func (m environment) Set(name, value string)         { m[name] = value }

// parseConfiguration reads stored steps as the backend does for a new build:
// YAML, normalized by go-pipeline, with env interpolated. A nil env
// interpolates nothing; another may get values more.
func parseConfiguration(yaml string, env map[string]string) (*steps.Document, error) {
	p, err := gopipeline.Parse(bytes.NewReader([]byte(yaml)))
	if err != nil && !warning.Is(err) {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if env != nil {
		if err := p.Interpolate(environment(env), false); err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
	}
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return steps.Parse(data)
}
