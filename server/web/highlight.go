package web

import (
	"html"
	"html/template"
	"path"
	"regexp"
	"strings"
)

// The parts of a language that have a color, by their classes in style.css: comments,
// strings, numbers and keywords. Code is a submitter's, so that a lexer must take linear
// time. Go's regexp does, and each alternative that has begun also matches without its end.
// (Chroma backtracks: 90 kB of white space took its Python lexer seven seconds.)
var (
	pythonParts = regexp.MustCompile(`(?P<lc>#[^\n]*)` +
		`|(?P<ls>(?s:"""(?:\\.|[^\\])*?(?:"""|\z)|'''(?:\\.|[^\\])*?(?:'''|\z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))` +
		`|(?P<ln>\b[0-9][0-9A-Za-z_.]*)` +
		`|(?P<lk>@[A-Za-z_][\w.]*|\b(?:False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)\b)`)
	cppParts = regexp.MustCompile(`(?P<lc>//[^\n]*|(?s:/\*.*?(?:\*/|\z)))` +
		`|(?P<ls>"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])'?)` +
		`|(?P<ln>\b[0-9][0-9A-Za-z_.]*)` +
		`|(?P<lk>#[ \t]*[a-z]+|\b(?:__\w+__|auto|bool|break|case|char|class|const|constexpr|continue|default|do|double|else|enum|extern|float|for|if|inline|int|long|namespace|new|operator|private|public|return|short|signed|sizeof|static|struct|switch|template|this|typedef|typename|union|unsigned|using|virtual|void|volatile|while)\b)`)
)

// maxHighlighted bounds the code that is given colors, in bytes.
const maxHighlighted = 64 << 10

// highlight returns code as lines of HTML, with the parts of its language in spans. The
// name of the file says which language it is.
func highlight(code, file string) []template.HTML {
	parts := pythonParts
	switch strings.ToLower(path.Ext(file)) {
	case ".cu", ".cuh", ".cpp", ".hip", ".h":
		parts = cppParts
	}
	var lines []template.HTML
	var line strings.Builder
	write := func(class, s string) {
		for i, part := range strings.Split(s, "\n") {
			if i > 0 {
				lines = append(lines, template.HTML(line.String()))
				line.Reset()
			}
			if part = html.EscapeString(part); class != "" && part != "" {
				part = `<span class="` + class + `">` + part + `</span>`
			}
			line.WriteString(part)
		}
	}
	at := 0
	if len(code) <= maxHighlighted {
		for _, m := range parts.FindAllStringSubmatchIndex(code, -1) {
			for i, class := range parts.SubexpNames() {
				if i > 0 && m[2*i] >= 0 {
					write("", code[at:m[0]])
					write(class, code[m[0]:m[1]])
					at = m[1]
				}
			}
		}
	}
	write("", code[at:])
	return append(lines, template.HTML(line.String()))
}
