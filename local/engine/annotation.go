package engine

import (
	"cmp"
	"slices"
	"time"
)

// An Annotation is a note on a build.
type Annotation struct {
	ID        string
	Context   string // one annotation per context
	Style     string // "info", "success", "warning", "error"; empty is allowed
	Body      string // Markdown and HTML, untrusted, at most 1 MiB
	Priority  int    // 1-10, default 3
	JobID     string // who wrote it last; empty: REST
	CreatedAt time.Time
	UpdatedAt time.Time
}

// maxAnnotation bounds an annotation's body, bytes.
const maxAnnotation = 1 << 20

// Annotate adds or changes the annotation of a context. With appendBody the
// body is added to what is there; an empty style keeps the one there.
func (e *Engine) Annotate(buildID string, a Annotation, appendBody bool) (Annotation, error) {
	return query(e, e.findBuildByID, buildID, func(b *build) (Annotation, error) {
		a.Context = cmp.Or(a.Context, "default")
		at := slices.IndexFunc(b.Annotations, func(have Annotation) bool { return have.Context == a.Context })
		if at >= 0 && appendBody {
			a.Body = b.Annotations[at].Body + a.Body
		}
		if err := checkAnnotation(&a); err != nil {
			return Annotation{}, err
		}
		now := e.now()
		if at < 0 {
			a.ID, a.CreatedAt, a.UpdatedAt = newID(), now, now
			a.Priority = cmp.Or(a.Priority, 3)
			b.Annotations = append(b.Annotations, a)
			e.publish(EventBuildAnnotation, b, nil, nil)
			return a, nil
		}
		have := &b.Annotations[at]
		have.Body, have.JobID, have.UpdatedAt = a.Body, a.JobID, now
		have.Style = cmp.Or(a.Style, have.Style)
		if a.Priority != 0 {
			have.Priority = a.Priority
		}
		e.publish(EventBuildAnnotation, b, nil, nil)
		return *have, nil
	})
}

func checkAnnotation(a *Annotation) error {
	switch {
	case len(a.Context) > 100:
		return Refuse(Invalid, "annotation context: got %d characters, want at most 100", len(a.Context))
	case len(a.Body) > maxAnnotation:
		return Refuse(Invalid, "annotation body: got %d bytes, want at most %d", len(a.Body), maxAnnotation)
	case a.Priority < 0 || a.Priority > 10:
		return Refuse(Invalid, "annotation priority: got %d, want 1 to 10", a.Priority)
	}
	if !slices.Contains([]string{"", "success", "info", "warning", "error"}, a.Style) {
		return Refuse(Invalid, "annotation style: got %q, want success, info, warning or error", a.Style)
	}
	return nil
}

// RemoveAnnotation removes the annotation with the context, or the id.
func (e *Engine) RemoveAnnotation(buildID, contextOrID string) error {
	return change(e, e.findBuildByID, buildID, func(b *build) error {
		before := len(b.Annotations)
		b.Annotations = slices.DeleteFunc(b.Annotations, func(a Annotation) bool {
			return a.Context == contextOrID || a.ID == contextOrID
		})
		if len(b.Annotations) == before {
			return Refuse(NotFound, "No annotation found")
		}
		e.publish(EventBuildAnnotation, b, nil, nil)
		return nil
	})
}
