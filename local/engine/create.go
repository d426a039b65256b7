package engine

import (
	"cmp"
)

// CreateBuild starts a build of a pipeline.
func (e *Engine) CreateBuild(slug string, in NewBuild) (Build, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.begin(slug, in)
}

// begin starts a build, gives its jobs out, and copies it.
func (e *Engine) begin(slug string, in NewBuild) (Build, error) {
	b, err := e.createBuild(slug, in)
	if err != nil {
		return Build{}, err
	}
	e.dispatch()
	return b.snapshot(), nil
}

func (e *Engine) createBuild(slug string, in NewBuild) (*build, error) {
	p, err := e.findPipeline(slug)
	if err != nil {
		return nil, err
	}
	if err := checkEnv(in.Env); err != nil {
		return nil, err
	}
	now := e.now()
	b := &build{
		Build: Build{
			ID: newID(), Number: p.builds + 1, Pipeline: p.Slug, NewBuild: in,
			RebuiltFrom: in.rebuiltFrom, CreatedAt: now, ScheduledAt: now,
		},
		pipeline: p,
		keys:     map[string]*node{},
		uploads:  map[string]error{},
		changed:  make(chan struct{}),
	}
	b.Env, b.MetaData = cloneMap(in.Env), cloneMap(in.MetaData)
	b.Commit, b.Branch, b.Source = cmp.Or(in.Commit, "HEAD"), cmp.Or(in.Branch, p.DefaultBranch), cmp.Or(in.Source, "api")
	b.family = new(int)
	if from := in.triggeredFrom; from != nil {
		b.family = from.build.family
		b.TriggeredFrom = &Trigger{BuildID: from.BuildID, Pipeline: from.Pipeline, Number: from.Number}
		b.depth = from.build.depth + 1
	}
	doc, err := parseConfiguration(p.Configuration, e.backendEnv(b))
	if err != nil {
		return nil, Refuse(Invalid, "%v", err)
	}
	if err := e.insert(b, doc, nil, nil); err != nil {
		return nil, err
	}
	b.note(doc)
	p.builds++
	e.builds = append(e.builds, b)
	e.byID[b.ID] = b
	e.setBuild(b, BuildScheduled)
	e.advance(b)
	return b, nil
}

// Rebuild starts a new build with the same commit, branch, message, env and
// pull request, for another creator. Meta-data is not copied.
func (e *Engine) Rebuild(id string, creator Person) (Build, error) {
	return query(e, e.findBuildByID, id, func(b *build) (Build, error) {
		in := b.NewBuild
		in.Creator, in.MetaData, in.Select, in.OnHost = creator, nil, nil, false
		in.rebuiltFrom, in.triggeredFrom = &BuildRef{ID: b.ID, Number: b.Number}, nil
		return e.begin(b.Pipeline, in)
	})
}
