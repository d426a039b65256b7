package identity

import (
	"encoding/json"
	"html/template"
	"net/http"
	"strings"
)

// head opens every page. It takes nothing from elsewhere.
const head = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<style>body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem}code{font-size:1.1em}button{font:inherit;padding:.4rem 1rem}</style>
`

var (
	confirmPage = template.Must(template.New("confirm").Parse(head + `<title>Let a terminal submit for you?</title>
<h1>Let a terminal submit for you?</h1>
<p>You are logged in with {{.Provider}} as <strong>{{.Account}}</strong> ({{.ID}}).</p>
<p>A popcorn-cli whose id begins with <code>{{.First}}</code> and ends with <code>{{.Last}}</code> asks to submit in this name.
{{if .Reset}}The id that you have now stops working.{{end}}</p>
<p>Did you start this yourself, in a terminal, a moment ago? The id stands in <code>~/.popcorn.yaml</code> there. If somebody sent you a link, close this page.</p>
<form method="post" action="/auth/cli/confirm"><button>Yes, that is my terminal</button></form>
`))
	donePage = template.Must(template.New("done").Parse(head + `<title>Done</title>
<h1>Done</h1>
<p>popcorn-cli may submit for <strong>{{.Account}}</strong> now. You can close this page.</p>
`))
	problemPage = template.Must(template.New("problem").Parse(head + `<title>That did not work</title>
<h1>That did not work</h1>
<p>{{.Text}}</p>
<p><a href="/">Back to the start</a></p>
`))
)

func (i *Identity) page(w http.ResponseWriter, status int, t *template.Template, data any) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Referrer-Policy", "same-origin") // no-referrer would make the Origin of its form null
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := t.Execute(w, data); err != nil {
		i.o.Log.Debug("writing a page", "error", err)
	}
}

// problem answers a browser with a page and everybody else with JSON.
func (i *Identity) problem(w http.ResponseWriter, r *http.Request, status int, what string) {
	if wantsPage(r) {
		i.page(w, status, problemPage, map[string]any{"Text": what})
		return
	}
	answer(w, status, map[string]any{"detail": what})
}

func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // fails when the client has left
}
