package blob

import (
	"cmp"
	"mime"
	"net/http"
	"os"
	"path"
	"strconv"

	"github.com/gpu-mode/kbgen/local/engine"
)

// download serves a finished artifact to anybody with a good link; ranges work.
func (s *Store) download(w http.ResponseWriter, r *http.Request) error {
	id, query := r.PathValue("id"), r.URL.Query()
	expires := query.Get("expires")
	if !s.signed(query.Get("signature"), "download", id, expires) {
		return engine.Refuse(http.StatusForbidden, "the signature of this link is wrong")
	}
	if until, err := strconv.ParseInt(expires, 10, 64); err != nil || s.engine.Now().Unix() >= until {
		return engine.Refuse(http.StatusForbidden, "this link has expired")
	}
	a, err := s.engine.Artifact(id)
	if err != nil {
		return err
	}
	if a.State != engine.ArtifactFinished {
		return engine.Refuse(engine.NotFound, "the artifact is %s", a.State)
	}
	f, err := os.Open(s.engine.ArtifactFile(id))
	if err != nil {
		return engine.Refuse(engine.NotFound, "the artifact's bytes are not here")
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", cmp.Or(a.ContentType, "application/octet-stream"))
	h.Set("Content-Disposition", cmp.Or(mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(a.Path)}), "attachment"))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	http.ServeContent(w, r, "", a.CreatedAt, f)
	return nil
}
