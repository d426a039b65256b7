package web

import (
	"html/template"
	"net/http"
	"strings"
)

// An aboutPage is the organizer's text: what the competition is, its rules and dates.
type aboutPage struct {
	Text   template.HTML
	Markup string // for the form
}

func (s *site) about(r *request) error {
	markup, err := s.Backend.About(r.Context())
	if err != nil {
		return err
	}
	if markup == "" && !r.viewer.Admin {
		return s.nothing(r)
	}
	return s.render(r, http.StatusOK, frame{Page: "about", Title: "About", Here: "about", Content: aboutPage{describe(markup), markup}})
}

// changeAbout replaces the text by that of the form.
func (s *site) changeAbout(r *request) error {
	a, err := s.Backend.Admin(r.viewer)
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(r.PostFormValue("text"), "\r\n", "\n") // as browsers send it
	if err := a.SetAbout(r.Context(), strings.TrimSpace(text)); err != nil {
		return err
	}
	return r.see("/about")
}
