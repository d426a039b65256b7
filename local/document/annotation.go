package document

import (
	"html"

	"github.com/gpu-mode/kbgen/local/engine"
)

// An Annotation is an annotation as JSON.
type Annotation struct {
	ID        string    `json:"id"`
	Context   string    `json:"context"`
	Style     *string   `json:"style"`
	Scope     string    `json:"scope"` // "build" always
	Priority  int       `json:"priority"`
	BodyHTML  string    `json:"body_html"` // the body escaped: the stand-in renders no Markdown here
	CreatedAt Timestamp `json:"created_at"`
	UpdatedAt Timestamp `json:"updated_at"`
}

// Annotation shows an annotation.
func (v *View) Annotation(a engine.Annotation) Annotation {
	return Annotation{
		ID: a.ID, Context: a.Context, Style: orNull(a.Style), Scope: "build", Priority: a.Priority,
		BodyHTML:  "<p>" + html.EscapeString(a.Body) + "</p>\n",
		CreatedAt: v.Time(a.CreatedAt), UpdatedAt: v.Time(a.UpdatedAt),
	}
}
