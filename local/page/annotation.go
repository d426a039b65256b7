package page

import (
	"bytes"
	"cmp"
	"html"
	"html/template"
	"net/url"
	"regexp"
	"strings"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	emoji "github.com/yuin/goldmark-emoji"
	"github.com/yuin/goldmark-emoji/definition"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	render "github.com/yuin/goldmark/renderer/html"
	source "github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Annotations are Markdown as GitHub has it, with HTML among it, written by
// jobs. Everything goes through a sanitizer at the end, and nothing on the page
// comes from elsewhere: an image is an artifact of the build, or a link.

// artifactScheme begins links to files of the same build.
const artifactScheme = "artifact://"

// links returns the path of an artifact's page, and that of its image, "" for what
// is none; ok is false when the build has no such artifact.
type links func(path string) (page, image string, ok bool)

var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.Linkify, emoji.New(emoji.WithRenderingMethod(emoji.Unicode))),
	goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(headings{}, 500))),
	goldmark.WithRendererOptions(render.WithUnsafe(), render.WithHardWraps()), // sanitized below
)

// headings makes room for the page's own first two levels.
type headings struct{}

func (headings) Transform(doc *ast.Document, _ source.Reader, _ parser.Context) {
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function never fails
		if h, ok := n.(*ast.Heading); ok && entering {
			h.Level = min(h.Level+2, 6)
		}
		return ast.WalkContinue, nil
	})
}

// sanitizer lets through what text consists of, links to the web and to artifacts,
// and images of artifacts. No class and no id: those are the page's own.
var sanitizer = func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "h3", "h4", "h5", "h6", "strong", "b", "em", "i", "del", "s", "u", "sub", "sup", "small", "mark",
		"code", "pre", "kbd", "samp", "blockquote", "ul", "ol", "li", "dl", "dt", "dd", "details", "summary",
		"table", "thead", "tbody", "tfoot", "tr", "th", "td", "caption", "div", "span")
	p.AllowAttrs("open").Matching(regexp.MustCompile(`^$`)).OnElements("details")
	p.AllowAttrs("start").Matching(bluemonday.Integer).OnElements("ol")
	p.AllowAttrs("colspan", "rowspan").Matching(regexp.MustCompile(`^[0-9]{1,3}$`)).OnElements("td", "th")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|right|center)$`)).OnElements("td", "th")
	p.AllowAttrs("href").OnElements("a")
	p.AllowAttrs("title").Matching(bluemonday.Paragraph).OnElements("a", "img")
	p.AllowAttrs("src").Matching(regexp.MustCompile(`^(artifact|https?)://`)).OnElements("img")
	p.AllowAttrs("alt").Matching(bluemonday.Paragraph).OnElements("img")
	p.AllowAttrs("width", "height").Matching(regexp.MustCompile(`^[0-9]{1,4}$`)).OnElements("img")
	p.AllowURLSchemes("http", "https", "artifact")
	p.RequireParseableURLs(true)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	return p
}()

// The sanitizer writes attributes in double quotes and escapes what is in them.
var (
	artifactLink = regexp.MustCompile(` href="artifact://([^"]*)"`)
	anyImage     = regexp.MustCompile(`<img((?: [a-z]+="[^"]*")*)/?>`)
	attribute    = regexp.MustCompile(` ([a-z]+)="([^"]*)"`)
)

// maxEffort bounds what the parser may have to do, in pairs of marks: about a
// second.
const maxEffort = 400_000_000

// effort estimates the parser's work. It pairs the marks of a paragraph with each
// other, so that work grows with the square of their number.
func effort(body string) int {
	total, marks := 0, 0
	for line := range strings.Lines(body) {
		if strings.TrimSpace(line) == "" {
			total, marks = total+marks*marks, 0
			continue
		}
		for i := range len(line) {
			if strings.IndexByte("*_[]>~-+", line[i]) >= 0 || (line[i] == '.' || line[i] == ')') && i > 0 && '0' <= line[i-1] && line[i-1] <= '9' {
				marks++
			}
		}
	}
	return total + marks*marks
}

// renderAnnotation renders a body, which may have 1 MiB, to safe HTML; one that
// would take too long becomes plain text.
func renderAnnotation(body string, in links) template.HTML {
	var out bytes.Buffer
	if effort(body) > maxEffort || markdown.Convert([]byte(body), &out) != nil {
		return template.HTML("<pre>" + html.EscapeString(body) + "</pre>")
	}
	safe := sanitizer.Sanitize(out.String())
	safe = anyImage.ReplaceAllStringFunc(safe, func(tag string) string { return imageOf(tag, in) })
	safe = artifactLink.ReplaceAllStringFunc(safe, func(attr string) string {
		path := artifactName(artifactLink.FindStringSubmatch(attr)[1])
		if page, _, ok := in(path); ok {
			return ` href="` + html.EscapeString(page) + `"`
		}
		return ` title="` + html.EscapeString("this build has no artifact "+path) + `"`
	})
	return template.HTML(safe)
}

// artifactName is the path that an attribute's URL names.
func artifactName(escaped string) string {
	path := html.UnescapeString(escaped)
	if plain, err := url.PathUnescape(path); err == nil {
		return plain
	}
	return path
}

// imageOf turns an image into one of this build's artifacts, and any other into a
// link to it: no page here fetches anything from elsewhere.
func imageOf(tag string, in links) string {
	attrs := map[string]string{}
	for _, m := range attribute.FindAllStringSubmatch(anyImage.FindStringSubmatch(tag)[1], -1) {
		attrs[m[1]] = m[2] // escaped as it is
	}
	src := html.UnescapeString(attrs["src"])
	alt := attrs["alt"]
	if path, ours := strings.CutPrefix(attrs["src"], artifactScheme); ours {
		path = artifactName(path)
		page, file, ok := in(path)
		switch {
		case !ok:
			return "[no artifact " + html.EscapeString(path) + "]"
		case file == "":
			return `<a href="` + html.EscapeString(page) + `">` + html.EscapeString(path) + `</a>`
		}
		size := ""
		for _, name := range []string{"width", "height"} {
			if attrs[name] != "" {
				size += " " + name + `="` + attrs[name] + `"`
			}
		}
		return `<a href="` + html.EscapeString(page) + `"><img src="` + html.EscapeString(file) + `" alt="` + alt + `"` + size + `></a>`
	}
	alt = cmp.Or(alt, "image")
	if !webURL(src) {
		return alt
	}
	return `<a href="` + html.EscapeString(src) + `" rel="nofollow noreferrer">` + alt + `</a>`
}

var emojiName = regexp.MustCompile(`:[a-z0-9_+-]{1,50}:`)

var emojis = definition.Github()

// withEmoji replaces the names of emoji in a label by what they name.
func withEmoji(label string) string {
	if strings.Count(label, ":") < 2 {
		return label
	}
	return emojiName.ReplaceAllStringFunc(label, func(name string) string {
		if e, ok := emojis.Get(strings.Trim(name, ":")); ok && e.IsUnicode() {
			return string(e.Unicode)
		}
		return name
	})
}
