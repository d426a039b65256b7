package web

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
)

func (p *boardPage) fillTemplates(b *store.Board) {
	if b.Task == nil {
		return
	}
	for i, t := range b.Task.Templates {
		p.Templates = append(p.Templates, download{
			Language: name(t.Language), Path: fmt.Sprintf("/templates/%s/%d", b.Name, i), File: templateFile(t.Language), Size: format.Size(int64(len(t.Text))),
		})
	}
}

// templateFile is the name under which a template is saved.
func templateFile(language string) string {
	if strings.EqualFold(language, "CUDA") || strings.EqualFold(language, "HIP") {
		return "submission.cu"
	}
	return "submission.py"
}

// template answers with one of a task's templates, as a file.
func (s *site) template(r *request) error {
	b, err := s.Backend.Board(r.Context(), r.viewer, r.PathValue("board"))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil || n < 0 || b.Task == nil || n >= len(b.Task.Templates) {
		return store.ErrNotFound
	}
	r.attach(templateFile(b.Task.Templates[n].Language), b.Task.Templates[n].Text)
	return nil
}

// attach answers with a file to save; no browser shows it as a page.
func (r *request) attach(file, content string) {
	h := r.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="`+plainName(file)+`"`)
	h.Set("Cache-Control", "no-store")
	_, _ = r.w.Write([]byte(content)) // the client may have left
}

// plainName keeps of a foreign file name what every system takes.
func plainName(file string) string {
	file = strings.Map(func(c rune) rune {
		if c == '.' || c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			return c
		}
		return '_'
	}, text.Shorten(file, maxName))
	if strings.Trim(file, "._") == "" {
		return "submission.txt"
	}
	return strings.TrimLeft(file, ".")
}
