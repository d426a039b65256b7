package web

import (
	"bytes"
	"cmp"
	"html/template"

	"github.com/gpu-mode/kbgen/verdict/view"
)

// Enclose returns a function that puts the content of another package's page into the
// frame of a competition's pages, as a visitor sees it who is not logged in. site is
// [Options.Name].
func Enclose(site string) func(title string, content template.HTML) ([]byte, error) {
	a, err := newAssets()
	if err != nil {
		panic(err) // a fault of the build: what is embedded cannot be read
	}
	t := template.Must(view.NewTemplate("enclosed").Funcs(template.FuncMap{"asset": a.path}).ParseFS(templateFiles, "templates/frame.html"))
	template.Must(t.Parse(`{{define "name"}}{{.}}{{end}}{{define "content"}}<div class="in narrow">{{.Content}}</div>{{end}}`))
	return func(title string, content template.HTML) ([]byte, error) {
		var page bytes.Buffer
		err := t.ExecuteTemplate(&page, "frame", frame{Page: "enclosed", Title: title, Site: cmp.Or(site, "Kernel competition"), Content: content})
		return page.Bytes(), err
	}
}
