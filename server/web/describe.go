package web

import (
	"bytes"
	"html"
	"html/template"
	"strings"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	source "github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/gpu-mode/kbgen/schema/text"
)

// Descriptions are Markdown. HTML in it is left out, an image is a link to it, and
// everything goes through a sanitizer at the end.

const (
	maxDescription = 100_000 // bytes that are shown

	// maxMarks bounds the marks of one paragraph: the parser pairs them with each
	// other, so that its work grows with their square.
	maxMarks = 2_000
)

var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Linkify),
	goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(tamed{}, 500))),
)

// tamed makes room for the page's own headings, and links of images.
type tamed struct{}

func (tamed) Transform(doc *ast.Document, _ source.Reader, _ parser.Context) {
	var images []*ast.Image
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function never fails
		switch n := n.(type) {
		case *ast.Heading:
			if entering {
				n.Level = 3
			}
		case *ast.Image:
			if entering {
				images = append(images, n)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, image := range images {
		link := ast.NewLink()
		link.Destination, link.Title = image.Destination, image.Title
		for child := image.FirstChild(); child != nil; {
			next := child.NextSibling()
			link.AppendChild(link, child)
			child = next
		}
		image.Parent().ReplaceChild(image.Parent(), image, link)
	}
}

var sanitizer = func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "h3", "strong", "em", "code", "pre", "blockquote", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("http", "https")
	p.RequireParseableURLs(true)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	return p
}()

// describe renders a task's description, which is foreign.
func describe(markup string) template.HTML {
	markup = text.Lines(markup)
	if len(markup) > maxDescription {
		markup = strings.ToValidUTF8(markup[:maxDescription], "") + "\n\n…"
	}
	if strings.TrimSpace(markup) == "" {
		return ""
	}
	var out bytes.Buffer
	if dear(markup) || markdown.Convert([]byte(markup), &out) != nil {
		return template.HTML("<pre>" + html.EscapeString(markup) + "</pre>")
	}
	return template.HTML(sanitizer.Sanitize(out.String()))
}

// dear reports whether a paragraph would take the parser long.
func dear(markup string) bool {
	marks := 0
	for line := range strings.Lines(markup) {
		if strings.TrimSpace(line) == "" {
			marks = 0
			continue
		}
		for i := range len(line) {
			if strings.IndexByte("*_[]>~`<!", line[i]) >= 0 {
				marks++
			}
		}
		if marks > maxMarks {
			return true
		}
	}
	return false
}

// summary is the beginning of a description on one line, without marks.
func summary(markup string, limit int) string {
	for line := range strings.Lines(text.Lines(markup)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "```") || strings.HasPrefix(line, "![") || strings.HasPrefix(line, "<") {
			continue
		}
		return text.Line(strings.NewReplacer("`", "", "**", "", "*", "").Replace(line), limit)
	}
	return ""
}
