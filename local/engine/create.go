package engine

// CreateBuild starts a build of a pipeline.
func (e *Engine) CreateBuild(slug string, in NewBuild) (Build, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.createBuild(slug, in)
	if err != nil {
		return Build{}, err
	}
	e.dispatch()
	return b.snapshot(), nil
}

func (e *Engine) createBuild(slug string, in NewBuild) (*build, error) {
	p, ok := e.pipelines[slug]
	if !ok {
		return nil, refuse(NotFound, "No pipeline found")
	}
	if err := checkEnv(in.Env); err != nil {
		return nil, err
	}
	now := e.now()
	b := &build{
		Build: Build{
			ID: newID(), Number: p.builds + 1, Pipeline: slug,
			Message: in.Message, Commit: in.Commit, Branch: in.Branch,
			Source: in.Source, Author: in.Author, Creator: in.Creator,
			Env: cloneMap(in.Env), MetaData: cloneMap(in.MetaData),
			CleanCheckout: in.CleanCheckout, IgnoreBranchFilters: in.IgnoreBranchFilters,
			PullRequestID: in.PullRequestID, PullRequestBase: in.PullRequestBase,
			PullRequestRepo: in.PullRequestRepo, PullRequestLabels: in.PullRequestLabels,
			RebuiltFrom: in.rebuiltFrom,
			CreatedAt:   now, ScheduledAt: now,
		},
		pipeline: p, selected: in.Select, onHost: in.OnHost,
		root:    &scope{},
		keys:    map[string]*node{},
		uploads: map[string]error{},
	}
	b.family = new(int)
	if from := in.triggeredFrom; from != nil {
		b.family = from.build.family
		b.TriggeredFrom = &Trigger{BuildID: from.BuildID, Pipeline: from.Pipeline, Number: from.Number}
		b.depth = from.build.depth + 1
	}
	if b.Commit == "" {
		b.Commit = "HEAD"
	}
	if b.Branch == "" {
		b.Branch = p.DefaultBranch
	}
	if b.Source == "" {
		b.Source = "api"
	}
	env := cloneMap(p.Env)
	for name, value := range b.Env {
		env[name] = value
	}
	doc, err := parseConfiguration(p.Configuration, e.interpolation(b, env))
	if err != nil {
		return nil, refuse(Invalid, "%v", err)
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
func (e *Engine) Rebuild(slug string, number int, creator Person) (Build, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.findBuild(slug, number)
	if err != nil {
		return Build{}, err
	}
	again, err := e.createBuild(slug, NewBuild{
		Message: b.Message, Commit: b.Commit, Branch: b.Branch, Source: b.Source,
		Author: b.Author, Creator: creator, Env: b.Env,
		CleanCheckout: b.CleanCheckout, IgnoreBranchFilters: b.IgnoreBranchFilters,
		PullRequestID: b.PullRequestID, PullRequestBase: b.PullRequestBase,
		PullRequestRepo: b.PullRequestRepo, PullRequestLabels: b.PullRequestLabels,
		rebuiltFrom: &BuildRef{ID: b.ID, Number: b.Number},
	})
	if err != nil {
		return Build{}, err
	}
	e.dispatch()
	return again.snapshot(), nil
}
