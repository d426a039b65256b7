package engine

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// commitKey is the meta-data the first checkout of a build leaves.
const commitKey = "buildkite:git:commit"

var commitLine = regexp.MustCompile(`^commit ([0-9a-f]{40}|[0-9a-f]{64})`)

// SetMetaData sets build-wide values. Keys and values are not empty.
func (e *Engine) SetMetaData(buildID string, items map[string]string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.byID[buildID]
	if !ok {
		return refuse(NotFound, "No build found")
	}
	for key, value := range items {
		if key == "" || strings.TrimSpace(value) == "" {
			return refuse(Invalid, "meta-data %q: key and value must not be empty", key)
		}
		if len(value) > 100_000 {
			return refuse(Invalid, "meta-data %q: got %d bytes, want at most 100000", key, len(value))
		}
	}
	maps.Copy(b.MetaData, items)
	e.publish(EventBuildMetaData, b, nil, nil)
	if sha := commitLine.FindStringSubmatch(items[commitKey]); sha != nil {
		b.commit = sha[1]
	}
	return nil
}

// GetMetaData returns one value.
func (e *Engine) GetMetaData(buildID, key string) (string, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.byID[buildID]
	if !ok {
		return "", false, refuse(NotFound, "No build found")
	}
	value, ok := b.MetaData[key]
	return value, ok, nil
}

// MetaDataKeys returns the build's keys, sorted.
func (e *Engine) MetaDataKeys(buildID string) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.byID[buildID]
	if !ok {
		return nil, refuse(NotFound, "No build found")
	}
	return slices.Sorted(maps.Keys(b.MetaData)), nil
}

// maxAnnotation bounds an annotation's body, bytes.
const maxAnnotation = 1 << 20

// Annotate adds or changes the annotation of a context. With appendBody the
// body is added to what is there; an empty style keeps the one there.
func (e *Engine) Annotate(buildID string, a Annotation, appendBody bool) (Annotation, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.byID[buildID]
	if !ok {
		return Annotation{}, refuse(NotFound, "No build found")
	}
	if a.Context == "" {
		a.Context = "default"
	}
	if err := checkAnnotation(&a); err != nil {
		return Annotation{}, err
	}
	now := e.now()
	at := slices.IndexFunc(b.Annotations, func(have Annotation) bool { return have.Context == a.Context })
	if at < 0 {
		a.ID, a.CreatedAt, a.UpdatedAt = newID(), now, now
		if a.Priority == 0 {
			a.Priority = 3
		}
		b.Annotations = append(b.Annotations, a)
		e.publish(EventBuildAnnotation, b, nil, nil)
		return a, nil
	}
	have := &b.Annotations[at]
	if appendBody {
		a.Body = have.Body + a.Body
	}
	if len(a.Body) > maxAnnotation {
		return Annotation{}, refuse(Invalid, "annotation body: got %d bytes, want at most %d", len(a.Body), maxAnnotation)
	}
	have.Body, have.JobID, have.UpdatedAt = a.Body, a.JobID, now
	have.Style = orElse(a.Style, have.Style)
	if a.Priority != 0 {
		have.Priority = a.Priority
	}
	e.publish(EventBuildAnnotation, b, nil, nil)
	return *have, nil
}

func checkAnnotation(a *Annotation) error {
	switch {
	case len(a.Context) > 100:
		return refuse(Invalid, "annotation context: got %d characters, want at most 100", len(a.Context))
	case len(a.Body) > maxAnnotation:
		return refuse(Invalid, "annotation body: got %d bytes, want at most %d", len(a.Body), maxAnnotation)
	case a.Priority < 0 || a.Priority > 10:
		return refuse(Invalid, "annotation priority: got %d, want 1 to 10", a.Priority)
	}
	if !slices.Contains([]string{"", "success", "info", "warning", "error"}, a.Style) {
		return refuse(Invalid, "annotation style: got %q, want success, info, warning or error", a.Style)
	}
	return nil
}

// RemoveAnnotation removes the annotation with the context, or the id.
func (e *Engine) RemoveAnnotation(buildID, contextOrID string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.byID[buildID]
	if !ok {
		return refuse(NotFound, "No build found")
	}
	before := len(b.Annotations)
	b.Annotations = slices.DeleteFunc(b.Annotations, func(a Annotation) bool {
		return a.Context == contextOrID || a.ID == contextOrID
	})
	if len(b.Annotations) == before {
		return refuse(NotFound, "No annotation found")
	}
	e.publish(EventBuildAnnotation, b, nil, nil)
	return nil
}

// StepAttribute answers `buildkite-agent step get`: an attribute of a step, as
// text.
func (e *Engine) StepAttribute(buildID, step, attribute string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, _, err := e.findStep(buildID, step)
	if err != nil {
		return "", err
	}
	switch attribute {
	case "id":
		return n.id, nil
	case "key":
		return n.def.Key, nil
	case "label":
		return n.label, nil
	case "command":
		return n.def.Command, nil
	case "type":
		return string(n.def.Kind), nil
	case "outcome":
		return n.outcome(), nil
	case "state":
		return n.stateName(), nil
	case "priority":
		return strconv.Itoa(n.last().Priority), nil
	case "agents":
		return strings.Join(n.last().Rules, "\n"), nil
	}
	return "", refuse(Invalid, "step attribute %q is not supported by kblocal, want agents, command, id, key, label, outcome, priority, state or type", attribute)
}

// last is the step's newest job; a group has an empty one.
func (n *node) last() *job {
	if len(n.jobs) == 0 {
		return &job{}
	}
	return n.jobs[len(n.jobs)-1]
}

// stateName is the step's state as `step get state` says it.
func (n *node) stateName() string {
	switch n.state {
	case nodeSettled:
		return "finished"
	case nodeOpen:
		for _, j := range n.latest() {
			if j.State.Held() {
				return "running"
			}
		}
		return "ready"
	}
	return "waiting_for_dependencies"
}

// UpdateStep answers `buildkite-agent step update`.
func (e *Engine) UpdateStep(buildID, step, attribute, value string, appendValue bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, b, err := e.findStep(buildID, step)
	if err != nil {
		return err
	}
	switch attribute {
	case "label":
		if appendValue {
			value = n.label + value
		}
		n.label = value
		for _, j := range n.latest() {
			j.Label = value
		}
	case "priority":
		priority, err := strconv.Atoi(value)
		if err != nil {
			return refuse(Invalid, "step priority: got %q, want a whole number", value)
		}
		for _, j := range n.latest() {
			j.Priority = priority
		}
		e.dispatch()
	default:
		return refuse(Invalid, "step attribute %q cannot be updated, want label or priority", attribute)
	}
	for _, j := range n.latest() {
		e.publish(EventJobChanged, b, j, nil)
	}
	return nil
}

// UpdateJob answers `buildkite-agent job update timeout_in_minutes`.
func (e *Engine) UpdateJob(jobID string, timeoutMinutes int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.findJob(jobID)
	if err != nil {
		return err
	}
	if timeoutMinutes < 1 {
		return refuse(Invalid, "timeout_in_minutes: got %d, want at least 1", timeoutMinutes)
	}
	if !j.State.Held() {
		return refuse(Invalid, "Job is %s", j.State)
	}
	j.Timeout = e.opts.Minute * time.Duration(timeoutMinutes)
	return nil
}

// Reprioritize changes the priority of a job that no agent has yet.
func (e *Engine) Reprioritize(jobID string, priority int) (Job, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.findJob(jobID)
	if err != nil {
		return Job{}, err
	}
	if j.State.Held() || j.State.Finished() {
		return Job{}, refuse(Invalid, "Job is %s and cannot be reprioritized", j.State)
	}
	j.Priority = priority
	e.dispatch()
	return j.snapshot(), nil
}
