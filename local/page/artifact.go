package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// Bounds on what of an artifact is shown, bytes.
const (
	maxPreview = 256 << 10
	maxImage   = 16 << 20
)

// artifactPage is one artifact with what can be shown of it.
type artifactPage struct {
	Path     string
	Name     string
	State    view.State
	Facts    []fact
	Download string // empty: nothing to fetch
	Image    string // path of the image
	Lines    []string
	Cut      string // how much of it is shown when that is not all
	None     string // why there is no preview
}

// findArtifact returns the artifact that the request's path names, and its build.
func (p *pages) findArtifact(r *http.Request) (engine.Artifact, engine.Build, error) {
	b, err := p.findBuild(r)
	if err != nil {
		return engine.Artifact{}, b, err
	}
	a, err := p.engine.Artifact(r.PathValue("artifact"))
	if err != nil || a.BuildID != b.ID {
		return engine.Artifact{}, b, engine.Refuse(engine.NotFound, "Build %d has no such artifact.", b.Number)
	}
	return a, b, nil
}

func (p *pages) artifactPath(a *engine.Artifact) string {
	return p.buildPath(a.Pipeline, a.Number) + "/artifacts/" + a.ID
}

func (p *pages) artifact(r *http.Request) (*frame, error) {
	a, b, err := p.findArtifact(r)
	if err != nil {
		return nil, err
	}
	row := p.artifactRow(&a, &b)
	c := &artifactPage{Path: row.Path, Name: text.Line(path.Base(a.Path), 200), State: row.State, Download: row.URL}
	c.Facts = slices.DeleteFunc([]fact{
		{Name: "Size", Text: row.Size},
		{Name: "Type", Text: text.Line(a.ContentType, 100)},
		{Name: "Created", Time: p.moment(a.CreatedAt)},
		{Name: "SHA-256", Text: text.Line(a.SHA256, 64)},
		{Name: "Job", Text: row.Job.Text, Path: row.Job.Path},
	}, fact.empty)
	if a.State == engine.ArtifactFinished {
		p.preview(c, &a)
	} else {
		c.None = "Its bytes are not here."
	}
	build := link{"#" + strconv.Itoa(b.Number), p.buildPath(b.Pipeline, b.Number)}
	return &frame{
		Page: "artifact", Title: c.Name + " · " + b.Pipeline + " " + build.Text,
		Crumbs:  []link{{b.Pipeline, p.pipelinePath(b.Pipeline)}, build, {c.Name, ""}},
		Content: c,
	}, nil
}

// preview shows text as lines and images as such.
func (p *pages) preview(c *artifactPage, a *engine.Artifact) {
	data, complete, err := readStart(p.engine.ArtifactFile(a.ID), maxPreview)
	switch {
	case err != nil:
		c.None = "Its bytes are not here."
		return
	case imageType(data) != "" && a.Size <= maxImage:
		c.Image = p.artifactPath(a) + "/image"
		return
	case a.Size == 0:
		c.None = "It is empty."
		return
	case !isText(data, complete):
		c.None = "It is no text and no image that a browser shows."
		return
	}
	if complete && (strings.HasSuffix(a.Path, ".json") || a.ContentType == "application/json") {
		var pretty bytes.Buffer
		if json.Indent(&pretty, data, "", "  ") == nil && pretty.Len() < 4*maxPreview {
			data = pretty.Bytes()
		}
	}
	lines := strings.Split(strings.TrimSuffix(text.Lines(string(data)), "\n"), "\n")
	if !complete {
		c.Cut = format.Size(maxPreview)
		lines = lines[:max(1, len(lines)-1)] // the last one is cut
	}
	c.Lines = lines
}

// readStart reads at most limit bytes of a file, and reports whether that is all.
func readStart(file string, limit int64) (data []byte, complete bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(data)) > limit {
		return data[:limit], false, err
	}
	return data, true, err
}

// imageType is the content type of an image that cannot run anything, "" for
// anything else. Whoever uploaded it is not asked.
func imageType(data []byte) string {
	kind := http.DetectContentType(data)
	if slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, kind) {
		return kind
	}
	return ""
}

func isText(data []byte, complete bool) bool {
	for n := 1; !complete && n < utf8.UTFMax && !utf8.Valid(data); n++ {
		data = data[:len(data)-1] // a character may be cut
	}
	return utf8.Valid(data) && bytes.IndexByte(data, 0) < 0
}

// image serves an artifact that is an image. It is the one thing of jobs that the
// pages' own origin serves, so it may do nothing, wherever it is opened.
func (p *pages) image(w http.ResponseWriter, r *http.Request) error {
	a, _, err := p.findArtifact(r)
	if err != nil {
		return err
	}
	data, complete, err := readStart(p.engine.ArtifactFile(a.ID), maxImage)
	if errors.Is(err, os.ErrNotExist) || err == nil && (!complete || imageType(data) == "" || a.State != engine.ArtifactFinished) {
		err = engine.Refuse(engine.NotFound, "This artifact is no image.")
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	w.Header().Set("Content-Type", imageType(data))
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data) // the client may have left
	return nil
}

// findLink finds an artifact by the name that an annotation gives it, see [links].
// The artifacts are those of the build, oldest first.
func (p *pages) findLink(artifacts []engine.Artifact, name string) (page, image string, ok bool) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	for _, a := range slices.Backward(artifacts) {
		if a.State != engine.ArtifactFinished || strings.TrimPrefix(path.Clean("/"+a.Path), "/") != name {
			continue
		}
		page = p.artifactPath(&a)
		if slices.Contains([]string{".png", ".jpg", ".jpeg", ".gif", ".webp"}, strings.ToLower(path.Ext(name))) {
			image = page + "/image"
		}
		return page, image, true
	}
	return "", "", false
}

func artifactState(s engine.ArtifactState) view.State {
	switch s {
	case engine.ArtifactFinished:
		return newState(string(s), "good", "tick")
	case engine.ArtifactNew:
		return newState("uploading", "busy", "dot")
	}
	return newState(string(s), "bad", "cross")
}
