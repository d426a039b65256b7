package restapi

import (
	"net/http"
	"slices"

	"github.com/gpu-mode/kbgen/local/engine"
)

func (c *call) buildAnnotations(b engine.Build) error {
	return listing(c, b.Annotations, c.view.Annotation)
}

// jobAnnotations lists those that the job was the last to write.
func (c *call) jobAnnotations(j engine.Job) error {
	b, err := c.engine.BuildByID(j.BuildID)
	if err != nil {
		return err
	}
	b.Annotations = slices.DeleteFunc(b.Annotations, func(a engine.Annotation) bool { return a.JobID != j.ID })
	return c.buildAnnotations(b)
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
