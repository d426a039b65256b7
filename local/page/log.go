package page

import (
	"fmt"
	"html"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	terminal "github.com/buildkite/terminal-to-html/v3"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
)

// maxRendered is how much of a log's end is rendered, bytes.
const maxRendered = 2 << 20

// The terminal that logs are rendered on: what buildkite-agent's
// pseudo-terminal has, and so much scrollback that its memory stays small.
const (
	columns    = 160
	rows       = 100
	scrollback = 200
)

// A logView is a rendered log, in the groups its lines open.
type logView struct {
	Groups  []logGroup
	Stamped bool // some line has a time
}

// A logGroup is a run of lines behind a header. The lines before the first
// header lie in a group without one.
type logGroup struct {
	Header   string // empty: none
	Number   int    // of the header's line; 0: lines have none
	Quiet    bool   // opened by "~~~"
	Open     bool
	Duration string        // until the next group, empty: unknown
	Lines    template.HTML // one element per line

	at time.Time
}

// A logStyle says how a log is shown.
type logStyle struct {
	location *time.Location
	openLast bool // open the last group when the log opens none itself
	numbered bool // lines have numbers and can be linked to
}

// renderLog renders a log as it came from the agent: ANSI codes, a timestamp
// before each line, and lines that open groups ("--- ", "+++ ", "~~~ ", and
// "^^^ +++" that opens the group it lies in).
func renderLog(data []byte, style logStyle) (logView, error) {
	screen, err := terminal.NewScreen(terminal.WithSize(columns, rows), terminal.WithMaxSize(columns, scrollback))
	if err != nil {
		return logView{}, err
	}
	g := grouper{style: style}
	screen.ScrollOutFunc = g.line
	if _, err := screen.Write(tameControls(data)); err != nil {
		return logView{}, err
	}
	if len(data) > 0 {
		for line := range strings.SplitSeq(screen.AsHTML(), "\n") {
			g.line(line)
		}
	}
	return g.view(), nil
}

var longNumber = regexp.MustCompile(`\x1b\[[0-9;?]*[0-9]{5,}[0-9;?]*`)
var fiveDigits = regexp.MustCompile(`[0-9]{5,}`)

// tameControls shortens the numbers in control sequences to four digits. The
// terminal adds them to its cursor unchecked: a number near 2^63 overflows,
// and the screen grows until memory ends.
func tameControls(data []byte) []byte {
	return longNumber.ReplaceAllFunc(data, func(seq []byte) []byte {
		return fiveDigits.ReplaceAll(seq, []byte("9999"))
	})
}

// A grouper sorts rendered lines into groups.
type grouper struct {
	style   logStyle
	groups  []logGroup
	lines   strings.Builder // of the last group
	opened  bool            // some line opened a group
	number  int             // of the last line, from 1
	stamped bool
}

// The terminal escapes all text, so these are its own tags.
var (
	timeTag = regexp.MustCompile(`^<time datetime="([^"]*)">[^<]*</time>`)
	anyTag  = regexp.MustCompile(`<[^>]*>`)
	linkTag = regexp.MustCompile(`<a href="([^"]*)">`)
	imgTag  = regexp.MustCompile(`<img alt="([^"]*)" src="([^"]*)"[^>]*>`)
)

// line takes one line of the terminal's HTML.
func (g *grouper) line(line string) {
	line = strings.TrimSuffix(line, "\n")
	g.number++
	var at time.Time
	if m := timeTag.FindStringSubmatch(line); m != nil {
		at, _ = time.Parse("2006-01-02T15:04:05.999Z", html.UnescapeString(m[1]))
		line = line[len(m[0]):]
	}
	switch marker, header := groupMarker(line); {
	case marker == "^^^" && len(g.groups) > 0:
		g.groups[len(g.groups)-1].Open, g.opened = true, true
		return
	case marker != "" && marker != "^^^":
		g.close(at)
		g.groups = append(g.groups, logGroup{Header: header, Number: g.shown(), Quiet: marker == "~~~", Open: marker == "+++", at: at})
		g.opened = g.opened || marker == "+++"
		return
	}
	if len(g.groups) == 0 {
		g.groups = append(g.groups, logGroup{Open: true, at: at})
	}
	if n := g.shown(); n > 0 {
		fmt.Fprintf(&g.lines, `<div id="L%d"><a href="#L%d" data-n="%d" tabindex="-1" aria-hidden="true"></a>`, n, n, n)
	} else {
		g.lines.WriteString(`<div>`)
	}
	if clock := g.clock(at); clock != "" {
		g.stamped = true
		g.lines.WriteString(`<time>` + clock + `</time>`)
	}
	g.lines.WriteString(safeTags(line))
	g.lines.WriteString("</div>") // and no line end: between blocks it would be a line of its own
}

// shown is the number of the current line, 0 where lines have none.
func (g *grouper) shown() int {
	if !g.style.numbered {
		return 0
	}
	return g.number
}

// groupMarker returns the marker and header of a line that opens a group, "^^^"
// for one that opens the group it lies in, and "" for any other.
func groupMarker(line string) (marker, header string) {
	if !strings.Contains(line, "--- ") && !strings.Contains(line, "+++") && !strings.Contains(line, "~~~ ") {
		return "", "" // nearly all lines, and cheap to see
	}
	plain := strings.TrimSpace(html.UnescapeString(anyTag.ReplaceAllString(line, "")))
	marker, header, ok := strings.Cut(plain, " ")
	switch {
	case plain == "^^^ +++":
		return "^^^", ""
	case ok && (marker == "---" || marker == "+++" || marker == "~~~"):
		return marker, text.Line(header, 300)
	}
	return "", ""
}

// clock is the time of day, "" for a line without a time. A time in the first
// years of the epoch is relative to one that lies before the rendered part.
func (g *grouper) clock(at time.Time) string {
	if at.Year() < 2000 || at.Year() > 9999 {
		return ""
	}
	return at.In(g.style.location).Format("15:04:05.000")
}

// close ends the last group at the time the next one begins.
func (g *grouper) close(at time.Time) {
	if len(g.groups) == 0 {
		return
	}
	last := &g.groups[len(g.groups)-1]
	last.Lines = template.HTML(g.lines.String()) // the terminal's HTML, see safeTags
	g.lines.Reset()
	if g.clock(last.at) != "" && g.clock(at) != "" {
		last.Duration = format.Duration(at.Sub(last.at))
	}
}

func (g *grouper) view() logView {
	g.close(time.Time{})
	if n := len(g.groups); n > 0 && !g.opened && g.style.openLast {
		g.groups[n-1].Open = true
	}
	return logView{Groups: g.groups, Stamped: g.stamped}
}

// safeTags narrows the links and images a log may make: links lead to the web,
// and images are those the log carries itself. Nothing is fetched from elsewhere.
func safeTags(line string) string {
	if !strings.Contains(line, "<a ") && !strings.Contains(line, "<img ") {
		return line
	}
	line = linkTag.ReplaceAllStringFunc(line, func(tag string) string {
		href := linkTag.FindStringSubmatch(tag)[1]
		if !webURL(html.UnescapeString(href)) {
			return "<a>"
		}
		return `<a href="` + href + `" rel="noopener noreferrer nofollow">`
	})
	return imgTag.ReplaceAllStringFunc(line, func(tag string) string {
		m := imgTag.FindStringSubmatch(tag)
		if strings.HasPrefix(m[2], "data:image/") {
			return tag
		}
		return "[image: " + m[1] + "]"
	})
}

func webURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// ansi are the sixteen named colours, chosen to be read on the dark ground of
// a log; bright ones behind.
var ansi = [16]string{
	"#6e7681", "#ff7b72", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#d0d7de",
	"#8b949e", "#ffa198", "#7ee787", "#f2cc60", "#a5d6ff", "#e2c5ff", "#8ddfe6", "#ffffff",
}

// terminalStyle serves the classes that terminal-to-html gives to colours.
func terminalStyle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "max-age=3600")
	var b strings.Builder
	for i, colour := range ansi[:8] {
		bright := ansi[i+8]
		fmt.Fprintf(&b, ".term-fg%d{color:%s}.term-fgi%d{color:%s}", 30+i, colour, 90+i, bright)
		fmt.Fprintf(&b, ".term-bg%d{background:%s;color:#0d1117}.term-bgi%d{background:%s;color:#0d1117}\n", 40+i, colour, 100+i, bright)
	}
	for i := range 256 {
		fmt.Fprintf(&b, ".term-fgx%d{color:%s}.term-bgx%d{background:%s}\n", i, xterm(i), i, xterm(i))
	}
	_, _ = w.Write([]byte(b.String())) // the client may have left
}

// xterm is a colour of the 256: sixteen named, a cube of 6x6x6, 24 greys.
func xterm(i int) string {
	if i < 16 {
		return ansi[i]
	}
	if i >= 232 {
		grey := 8 + 10*(i-232)
		return fmt.Sprintf("#%02x%02x%02x", grey, grey, grey)
	}
	level := func(n int) int {
		if n == 0 {
			return 0
		}
		return 55 + 40*n
	}
	i -= 16
	return fmt.Sprintf("#%02x%02x%02x", level(i/36), level(i/6%6), level(i%6))
}
