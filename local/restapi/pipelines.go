package restapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/local/document"
	"github.com/gpu-mode/kbgen/local/engine"
)

// pipelineSettings are kept for clients that read them back. The stand-in does
// not use them.
type pipelineSettings struct {
	visibility string // "private" when empty
	tags       []string
}

// details shows a pipeline with its details and kept settings.
func (c *call) details(p engine.Pipeline) *document.Pipeline {
	out := c.view.PipelineWithDetails(p)
	c.mu.Lock()
	kept := c.settings[p.ID]
	c.mu.Unlock()
	out.Visibility = cmp.Or(kept.visibility, out.Visibility)
	out.Tags = append(out.Tags, kept.tags...)
	return out
}

func (c *call) listPipelines() error {
	q := c.r.URL.Query()
	name, repository := strings.ToLower(q.Get("name")), q.Get("repository")
	pipelines := slices.DeleteFunc(c.engine.Pipelines(), func(p engine.Pipeline) bool {
		return !strings.Contains(strings.ToLower(p.Name), name) || !strings.Contains(p.Repository, repository)
	})
	return listing(c, pipelines, c.details)
}

func (c *call) getPipeline() error {
	return ok(c, c.details)(c.engine.Pipeline(c.r.PathValue("pipeline")))
}

func (c *call) createPipeline() error {
	f := c.form()
	var p engine.Pipeline
	p.Name, p.Repository, p.Configuration = required(f, "name"), required(f, "repository"), required(f, "configuration")
	p.Slug, _ = take[string](f, "slug")
	p.Env = stringMap(f, "env")
	change, settings := readPipeline(f)
	if err := c.check(f); err != nil {
		return err
	}
	change(&p)
	p, err := c.engine.CreatePipeline(p)
	if err != nil {
		return err
	}
	c.keep(p.ID, settings)
	c.answer(http.StatusCreated, c.details(p))
	return nil
}

// updatePipeline changes the fields that are given.
func (c *call) updatePipeline() error {
	f := c.form()
	name, named := take[string](f, "name")
	repository, moved := take[string](f, "repository")
	configuration, configured := take[string](f, "configuration")
	_, hasEnv := f.left["env"]
	env := stringMap(f, "env")
	change, settings := readPipeline(f)
	if err := c.check(f); err != nil {
		return err
	}
	p, err := c.engine.UpdatePipeline(c.r.PathValue("pipeline"), func(p *engine.Pipeline) {
		setIf(named, &p.Name, name)
		setIf(moved, &p.Repository, repository)
		setIf(configured, &p.Configuration, configuration)
		setIf(hasEnv, &p.Env, env)
		change(p)
	})
	if err != nil {
		return err
	}
	c.keep(p.ID, settings)
	return c.ok(c.details(p))
}

func setIf[T any](given bool, at *T, value T) {
	if given {
		*at = value
	}
}

// readPipeline takes the fields that creating and updating share. It refuses a
// setting that would change how builds behave and that the engine does not know.
// It drops teams, provider settings and filters of settings that are off.
func readPipeline(f *form) (change func(*engine.Pipeline), settings func(*pipelineSettings)) {
	branch, hasBranch := take[string](f, "default_branch")
	description, hasDescription := take[string](f, "description")
	visibility, hasVisibility := take[string](f, "visibility")
	tags, hasTags := take[[]string](f, "tags")
	if cluster, given := take[string](f, "cluster_id"); given && cluster != engine.ClusterID {
		f.refuse("cluster_id", "invalid")
	}
	if hasVisibility && visibility != "private" && visibility != "public" {
		f.refuse("visibility", "invalid")
	}
	refuseUnlike(f, false, "skip_queued_branch_builds", "cancel_running_branch_builds")
	refuseUnlike(f, true, "allow_rebuilds")
	refuseUnlike(f, "", "branch_configuration", "pipeline_template_uuid")
	refuseUnlike(f, 0, "default_command_step_timeout", "maximum_command_step_timeout")
	for _, name := range []string{"teams", "team_uuids", "provider_settings", "skip_queued_branch_builds_filter", "cancel_running_branch_builds_filter", "emoji", "color"} {
		take[json.RawMessage](f, name)
	}
	change = func(p *engine.Pipeline) {
		setIf(hasBranch, &p.DefaultBranch, branch)
		setIf(hasDescription, &p.Description, description)
	}
	settings = func(s *pipelineSettings) {
		setIf(hasVisibility, &s.visibility, visibility)
		setIf(hasTags, &s.tags, tags)
	}
	return change, settings
}

// refuseUnlike takes fields that may only have one value here.
func refuseUnlike[T comparable](f *form, want T, names ...string) {
	for _, name := range names {
		if got, given := take[T](f, name); given && got != want {
			f.refuse(name, "not_implemented")
		}
	}
}

func (c *call) keep(id string, change func(*pipelineSettings)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.settings[id]
	change(&s)
	c.settings[id] = s
}

func (c *call) deletePipeline() error {
	p, err := c.engine.Pipeline(c.r.PathValue("pipeline"))
	if err != nil {
		return err
	}
	if err := c.engine.DeletePipeline(p.Slug); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.settings, p.ID)
	c.mu.Unlock()
	return c.noContent(nil)
}
