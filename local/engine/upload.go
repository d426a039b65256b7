package engine

import (
	"cmp"
	"slices"

	"github.com/gpu-mode/kbgen/local/steps"
	"github.com/gpu-mode/kbgen/schema"
)

// Upload adds the pipeline that a running job uploads. An upload repeated
// with the same uuid is answered as the first time. replace drops what comes
// behind the job and has not begun.
func (e *Engine) Upload(jobID, uuid string, pipeline []byte, replace bool) error {
	return change(e, e.findJob, jobID, func(j *job) error {
		b := j.build
		id := j.ID + "/" + uuid
		if before, done := b.uploads[id]; done && uuid != "" {
			return before
		}
		err := e.upload(j, pipeline, replace)
		b.uploads[id] = err
		if err != nil {
			j.UploadRefused = err.Error()
			e.publish(EventUploadRefused, b, j, nil)
		}
		return err
	})
}

func (e *Engine) upload(j *job, pipeline []byte, replace bool) error {
	b := j.build
	switch {
	case j.State != JobRunning:
		return Refuse(Invalid, "Pipelines can be uploaded by running jobs only, this one is %s", j.State)
	case len(b.uploads) >= schema.MaxUploadsPerBuild:
		return Refuse(Invalid, "The build has had %d uploads, which is the limit", schema.MaxUploadsPerBuild)
	}
	doc, err := steps.Parse(pipeline)
	if err != nil {
		return Refuse(Invalid, "%v", err)
	}
	var dropped []*node
	if replace {
		dropped = b.notBegun(j.node)
	}
	if err := e.insert(b, doc, j, dropped); err != nil {
		return err
	}
	b.note(doc)
	e.advance(b)
	e.dispatch()
	return nil
}

// notBegun returns the top-level steps behind n of which no job has begun.
func (b *build) notBegun(n *node) []*node {
	n = cmp.Or(n.parent, n)
	begun := func(m *node) bool {
		return slices.ContainsFunc(m.jobs, func(j *job) bool { return j.State.Held() || !j.StartedAt.IsZero() })
	}
	at := slices.Index(b.nodes, n) + 1
	return slices.DeleteFunc(slices.Clone(b.nodes[at:]), func(m *node) bool {
		return begun(m) || slices.ContainsFunc(m.children, begun)
	})
}

// forget removes a step and its jobs from a build.
func (e *Engine) forget(b *build, n *node) {
	for _, child := range n.children {
		e.forget(b, child)
	}
	delete(b.keys, n.def.Key)
	for _, j := range n.jobs {
		e.leaveGroup(j)
		e.unready(j)
		delete(e.jobs, j.ID)
		b.jobs = slices.DeleteFunc(b.jobs, func(other *job) bool { return other == j })
	}
	b.nodes = slices.DeleteFunc(b.nodes, func(m *node) bool { return m == n })
	for _, m := range withChildren(b.nodes) {
		m.uploaded = slices.DeleteFunc(m.uploaded, func(u *node) bool { return u == n })
	}
}
