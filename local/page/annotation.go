package page

import (
	"fmt"
	"html"
	"html/template"
	"regexp"
	"strings"
)

// renderAnnotation renders a part of Markdown: paragraphs with their line breaks,
// headings, flat lists, quotes, tables and fenced code; inside them code, bold
// text and links to the web. HTML is shown as text. The time it takes is linear
// in the body, which may have 1 MiB.
func renderAnnotation(body string) template.HTML {
	r := annotationWriter{lines: strings.Split(strings.ReplaceAll(body, "\r\n", "\n"), "\n")}
	for r.more() {
		r.block()
	}
	return template.HTML(r.out.String()) // every text went through html.EscapeString
}

// An annotationWriter goes through the lines once.
type annotationWriter struct {
	lines []string
	at    int
	out   strings.Builder
}

func (r *annotationWriter) more() bool   { return r.at < len(r.lines) }
func (r *annotationWriter) line() string { return strings.TrimSpace(r.lines[r.at]) }

var (
	headingLine = regexp.MustCompile(`^(#{1,6})\s+(.*?)\s*#*$`)
	bulletLine  = regexp.MustCompile(`^[-*+]\s+(.*)$`)
	numberLine  = regexp.MustCompile(`^[0-9]{1,9}[.)]\s+(.*)$`)
	quoteLine   = regexp.MustCompile(`^>\s?(.*)$`)
	tableRule   = regexp.MustCompile(`^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$`)
)

// block writes the block that begins at the current line and moves behind it.
func (r *annotationWriter) block() {
	line := r.line()
	switch m := headingLine.FindStringSubmatch(line); {
	case line == "":
		r.at++
	case strings.HasPrefix(line, "```"):
		r.code()
	case m != nil:
		level := min(len(m[1])+2, 6) // the page has its own first two
		fmt.Fprintf(&r.out, "<h%d>%s</h%d>\n", level, inline(m[2]), level)
		r.at++
	case bulletLine.MatchString(line):
		r.run("ul", bulletLine, "<li>%s</li>\n")
	case numberLine.MatchString(line):
		r.run("ol", numberLine, "<li>%s</li>\n")
	case quoteLine.MatchString(line):
		r.run("blockquote", quoteLine, "%s<br>\n")
	case r.atTable():
		r.table()
	default:
		r.paragraph()
	}
}

// code writes a fenced block, to its closing fence or the end.
func (r *annotationWriter) code() {
	fence := r.line()[:3]
	r.at++
	r.out.WriteString("<pre><code>")
	for ; r.more() && !strings.HasPrefix(r.line(), fence); r.at++ {
		r.out.WriteString(html.EscapeString(r.lines[r.at]) + "\n")
	}
	r.at++
	r.out.WriteString("</code></pre>\n")
}

// run writes the lines that match as items of one element.
func (r *annotationWriter) run(element string, item *regexp.Regexp, format string) {
	fmt.Fprintf(&r.out, "<%s>\n", element)
	for ; r.more(); r.at++ {
		m := item.FindStringSubmatch(r.line())
		if m == nil {
			break
		}
		fmt.Fprintf(&r.out, format, inline(m[1]))
	}
	fmt.Fprintf(&r.out, "</%s>\n", element)
}

// atTable reports whether the current line is a table's head.
func (r *annotationWriter) atTable() bool {
	return strings.Contains(r.line(), "|") && r.at+1 < len(r.lines) && tableRule.MatchString(strings.TrimSpace(r.lines[r.at+1]))
}

func (r *annotationWriter) table() {
	r.out.WriteString("<table><thead>")
	r.row(`th scope="col"`, "th")
	r.at++ // the rule
	r.out.WriteString("</thead><tbody>")
	for r.more() && strings.Contains(r.line(), "|") {
		r.row("td", "td")
	}
	r.out.WriteString("</tbody></table>\n")
}

func (r *annotationWriter) row(open, end string) {
	r.out.WriteString("<tr>")
	line := strings.TrimSuffix(strings.TrimPrefix(r.line(), "|"), "|")
	for cell := range strings.SplitSeq(line, "|") {
		fmt.Fprintf(&r.out, "<%s>%s</%s>", open, inline(strings.TrimSpace(cell)), end)
	}
	r.out.WriteString("</tr>\n")
	r.at++
}

// paragraph writes the lines up to the next block.
func (r *annotationWriter) paragraph() {
	r.out.WriteString("<p>" + inline(r.line()))
	for r.at++; r.more() && !r.startsBlock(); r.at++ {
		r.out.WriteString("<br>\n" + inline(r.line()))
	}
	r.out.WriteString("</p>\n")
}

func (r *annotationWriter) startsBlock() bool {
	line := r.line()
	if line == "" || !strings.ContainsRune("#`-*+>0123456789", rune(line[0])) {
		return line == "" || r.atTable()
	}
	return strings.HasPrefix(line, "```") || headingLine.MatchString(line) || bulletLine.MatchString(line) ||
		numberLine.MatchString(line) || quoteLine.MatchString(line) || r.atTable()
}

var inlineMark = regexp.MustCompile("`[^`]+`" + `|\*\*[^*]+\*\*|\[[^\[\]]+\]\([^()\s]+\)|https?://[^\s<>"'()]+`)

// inline renders the text of one line.
func inline(s string) string {
	if !strings.ContainsAny(s, "`*[:") {
		return html.EscapeString(s)
	}
	var out strings.Builder
	at := 0
	for _, m := range inlineMark.FindAllStringIndex(s, -1) {
		out.WriteString(html.EscapeString(s[at:m[0]]))
		out.WriteString(mark(s[m[0]:m[1]]))
		at = m[1]
	}
	out.WriteString(html.EscapeString(s[at:]))
	return out.String()
}

// mark renders one match of inlineMark.
func mark(s string) string {
	switch {
	case s[0] == '`':
		return "<code>" + html.EscapeString(s[1:len(s)-1]) + "</code>"
	case s[0] == '*':
		return "<strong>" + html.EscapeString(s[2:len(s)-2]) + "</strong>"
	case s[0] == '[':
		text, target, _ := strings.Cut(s[1:len(s)-1], "](")
		return anchor(target, text, s)
	}
	return anchor(s, s, s)
}

// anchor renders a link to the web, and any other as the text it was.
func anchor(target, text, source string) string {
	if !webURL(target) {
		return html.EscapeString(source)
	}
	return fmt.Sprintf(`<a href="%s" rel="noopener noreferrer nofollow">%s</a>`, html.EscapeString(target), html.EscapeString(text))
}
