package restapi

import (
	"net/http"
	"slices"

	"github.com/gpu-mode/kbgen/local/engine"
)

// listAnnotations lists a build's annotations, or those that a job of it was
// the last to write.
func (c *call) listAnnotations() error {
	var all []engine.Annotation
	if c.r.PathValue("job") == "" {
		b, err := c.build()
		if err != nil {
			return err
		}
		all = b.Annotations
	} else {
		j, err := c.job()
		if err != nil {
			return err
		}
		b, err := c.engine.BuildByID(j.BuildID)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(b.Annotations, func(a engine.Annotation) bool { return a.JobID != j.ID })
	}
	return listing(c, all, c.view.Annotation)
}

func (c *call) annotate(b engine.Build) error {
	f := c.form()
	a := engine.Annotation{Body: required(f, "body")}
	a.Context, _ = take[string](f, "context")
	a.Style, _ = take[string](f, "style")
	a.Priority, _ = take[int](f, "priority")
	appendBody, _ := take[bool](f, "append")
	if err := c.check(f); err != nil {
		return err
	}
	return shown(c, http.StatusCreated, c.view.Annotation)(c.engine.Annotate(b.ID, a, appendBody))
}

// removeAnnotation takes an id only; the engine would take a context as well.
func (c *call) removeAnnotation(b engine.Build) error {
	id := c.r.PathValue("annotation")
	if !slices.ContainsFunc(b.Annotations, func(a engine.Annotation) bool { return a.ID == id }) {
		return engine.Refuse(engine.NotFound, "No annotation found")
	}
	return c.noContent(c.engine.RemoveAnnotation(b.ID, id))
}
