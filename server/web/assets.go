package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/gpu-mode/kbgen/verdict/view"
)

//go:embed assets
var assetFiles embed.FS

//go:embed templates
var templateFiles embed.FS

// An asset is one file beside the pages. Its name has its digest in it, so that a
// browser may keep it for ever.
type asset struct {
	content     []byte
	contentType string
	tag         string // ETag
}

// assets are the embedded files by their path.
type assets struct {
	byPath map[string]asset
	paths  map[string]string // by the name in the directory
}

func newAssets() (*assets, error) {
	a := &assets{byPath: map[string]asset{}, paths: map[string]string{}}
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		content, err := assetFiles.ReadFile("assets/" + e.Name())
		if err != nil {
			return nil, err
		}
		a.add(e.Name(), content)
	}
	a.add("report.css", view.Style)
	return a, nil
}

// add adds a file; its name in a page's template is name.
func (a *assets) add(name string, content []byte) {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:6])
	stem, ext, _ := strings.Cut(name, ".")
	at := path.Join("/assets", stem+"."+digest+"."+ext)
	a.byPath[at] = asset{content, mime.TypeByExtension("." + ext), `"` + digest + `"`}
	a.paths[name] = at
}

// path returns where a file is; a name that is not there fails the template.
func (a *assets) path(name string) (string, error) {
	if at, ok := a.paths[name]; ok {
		return at, nil
	}
	return "", fmt.Errorf("there is no asset %q", name)
}

// serve answers with an asset, and reports whether there is one.
func (a *assets) serve(w http.ResponseWriter, r *http.Request) bool {
	file, ok := a.byPath[r.URL.Path]
	if !ok {
		return false
	}
	h := w.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("ETag", file.tag)
	if r.Header.Get("If-None-Match") == file.tag {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	h.Set("Content-Type", file.contentType)
	_, _ = w.Write(file.content) // the client may have left
	return true
}
