package web

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	source "github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// maxName is how much of a foreign name a page shows, in runes.
const maxName = 60

// name makes a foreign name fit for one line of a page.
func name(s string) string {
	if s = text.Line(s, maxName); s == "" {
		return "(no name)"
	}
	return s
}

// A lag says how much slower a score is than the first: "+1.250", "+3.1 %".
type lag struct{ Difference, Share string }

// behind is a score's lag, nil for the first itself.
func behind(seconds, first float64) *lag {
	if !(seconds > first) || !(first > 0) {
		return nil
	}
	return &lag{"+" + format.Microseconds(seconds-first), percentage(seconds/first - 1)}
}

// percentage writes a share above zero: "+0.1 %", "+340 %", "×12".
func percentage(share float64) string {
	switch {
	case share < 0.0005:
		return "< 0.1 %"
	case share < 1:
		return fmt.Sprintf("+%.1f %%", share*100)
	case share < 9:
		return fmt.Sprintf("×%.1f", share+1)
	}
	return fmt.Sprintf("×%.0f", share+1)
}

// spell writes a length of time in words, its largest unit and the next one where
// that matters: "45 seconds", "2 hours 5 minutes", "3 days".
func spell(d time.Duration) string {
	d = max(d, 0)
	minutes, hours, days := int(d.Minutes()), int(d.Hours()), int(d.Hours()/24)
	switch {
	case d < time.Minute:
		return format.Count(int(d.Seconds()), "second")
	case hours == 0:
		return format.Count(minutes, "minute")
	case days == 0:
		if hours < 6 && minutes%60 > 0 {
			return format.Count(hours, "hour") + " " + format.Count(minutes%60, "minute")
		}
		return format.Count(hours, "hour")
	case days < 4 && hours%24 > 0:
		return format.Count(days, "day") + " " + format.Count(hours%24, "hour")
	case days >= 730:
		return format.Count(days/365, "year")
	case days >= 92:
		return format.Count(days/30, "month")
	}
	return format.Count(days, "day")
}

// about writes an expected wait, which nobody knows to the second.
func about(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < 10*time.Second:
		return "a few seconds"
	case d < time.Minute:
		return "about " + spell(d.Round(10*time.Second))
	case d < time.Hour:
		return "about " + spell(d.Round(time.Minute))
	}
	return "about " + spell(d.Round(5*time.Minute))
}

// newMoment shows a point in time in UTC: "3 min ago", "12 Nov 16:04", "12 Nov 2025".
func newMoment(t, now time.Time) view.Moment {
	if t.IsZero() {
		return view.Moment{}
	}
	t, now = t.UTC(), now.UTC()
	m := view.Moment{ISO: t.Format(time.RFC3339), Full: t.Format("2 January 2006, 15:04:05 UTC")}
	switch ago := now.Sub(t); {
	case ago >= 0 && ago < 10*time.Second:
		m.Text = "just now"
	case ago >= 0 && ago < 24*time.Hour:
		m.Text = brief(ago) + " ago"
	case t.Year() == now.Year():
		m.Text = t.Format("2 Jan 15:04")
	default:
		m.Text = t.Format("2 Jan 2006")
	}
	return m
}

// brief is a length of time in one unit: "45 s", "5 min", "3 h".
func brief(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h", int(d.Hours()))
}

// deadline says in words when a board ends.
func deadline(t, now time.Time) string {
	if now.After(t) {
		return "ended " + spell(now.Sub(t)) + " ago"
	}
	return "ends in " + spell(t.Sub(now))
}

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

// templateFile is the name of a submission in the language of a template or a task.
func templateFile(language string) string {
	switch strings.ToUpper(language) {
	case "CUDA", "HIP", strings.ToUpper(schema.LangCUDA):
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
	r.attach(templateFile(b.Task.Templates[n].Language), plainText, []byte(b.Task.Templates[n].Text))
	return nil
}

// attach answers with a file to save; no browser shows it as a page.
func (r *request) attach(file, contentType string, content []byte) {
	h := r.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Disposition", `attachment; filename="`+plainName(file)+`"`)
	h.Set("Cache-Control", "no-store")
	_, _ = r.w.Write(content) // the client may have left
}

const plainText = "text/plain; charset=utf-8"

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
