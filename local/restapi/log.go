package restapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	terminal "github.com/buildkite/terminal-to-html/v3"

	"github.com/gpu-mode/kbgen/local/engine"
)

// maxHTML is how much of a log's end is rendered as HTML, bytes.
const maxHTML = 2 << 20

var suffixRange = regexp.MustCompile(`^bytes=-([0-9]{1,18})$`)

// log answers a job's log as JSON, as raw text or as HTML, chosen by the
// path's extension or the Accept header. It ends where the log has grown to
// without a gap. HEAD gives the size of the raw text in every format.
func (c *call) log(j engine.Job) error {
	file, err := c.engine.Log(j.ID)
	if err != nil {
		return err
	}
	defer file.Close()
	format := c.logFormat()
	c.w.Header().Set("Accept-Ranges", "bytes")
	if c.r.Method == http.MethodHead {
		c.w.Header().Set("Content-Type", format)
		c.w.Header().Set("Content-Length", strconv.FormatInt(j.LogSize, 10))
		return nil
	}
	if spec := c.r.Header.Get("Range"); spec != "" {
		return c.logTail(file, j.LogSize, spec, format)
	}
	switch format {
	case textPlain:
		c.w.Header().Set("Content-Type", format)
		c.w.Header().Set("Content-Length", strconv.FormatInt(j.LogSize, 10))
		_, err = io.CopyN(c.w, file, j.LogSize)
		return c.sent(err)
	case textHTML:
		return c.logHTML(j)
	}
	return c.logJSON(file, j.LogSize, c.view.JobURL(j)+"/log")
}

const (
	textPlain = "text/plain; charset=utf-8"
	textHTML  = "text/html; charset=utf-8"
	jsonText  = "application/json; charset=utf-8"
)

func (c *call) logFormat() string {
	accept := c.r.Header.Get("Accept")
	switch {
	case strings.HasSuffix(c.r.URL.Path, ".txt"), strings.Contains(accept, "text/plain"):
		return textPlain
	case strings.HasSuffix(c.r.URL.Path, ".html"), strings.Contains(accept, "text/html"):
		return textHTML
	}
	return jsonText
}

// sent notes an answer that broke off; it is too late to say so in it.
func (c *call) sent(err error) error {
	if err != nil {
		c.opts.Logger.Debug("rest: sending a log", "path", c.r.URL.Path, "err", err)
	}
	return nil
}

// logTail answers a suffix range, the only kind there is.
func (c *call) logTail(file io.ReadSeeker, size int64, spec, format string) error {
	match := suffixRange.FindStringSubmatch(spec)
	var n int64
	if match != nil {
		n, _ = strconv.ParseInt(match[1], 10, 64)
	}
	switch {
	case format != textPlain:
		return engine.Refuse(engine.BadRequest, "Range needs Accept: text/plain")
	case n == 0:
		return engine.Refuse(engine.BadRequest, "Only suffix ranges are supported: bytes=-N, N at least 1")
	case size == 0:
		c.w.Header().Set("Content-Range", "bytes */0")
		return engine.Refuse(http.StatusRequestedRangeNotSatisfiable, "The log is empty")
	}
	n = min(n, size)
	if _, err := file.Seek(size-n, io.SeekStart); err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", format)
	c.w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	c.w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", size-n, size-1, size))
	c.w.WriteHeader(http.StatusPartialContent)
	_, err := io.CopyN(c.w, file, n)
	return c.sent(err)
}

func (c *call) logHTML(j engine.Job) error {
	tail, err := c.engine.ReadLog(j.ID, max(0, j.LogSize-maxHTML), j.LogSize)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", textHTML)
	_, err = io.WriteString(c.w, terminal.Render(tail))
	return c.sent(err)
}

// logJSON streams the log as a JSON string, so that a long one is not held in
// memory. Bytes that are not UTF-8 become U+FFFD. The stand-in knows no header
// times.
func (c *call) logJSON(file io.Reader, size int64, url string) error {
	quoted, err := json.Marshal(url)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", jsonText)
	if _, err := fmt.Fprintf(c.w, `{"url":%s,"content":"`, quoted); err != nil {
		return c.sent(err)
	}
	content := &stringBody{w: c.w}
	if _, err := io.CopyN(content, file, size); err != nil {
		return c.sent(err)
	}
	_, err = fmt.Fprintf(c.w, `%s","size":%d,"header_times":[]}`, escape(content.tail), size)
	return c.sent(err)
}

// A stringBody writes what lies between the quotes of a JSON string. A rune
// that a write ends in waits for the next.
type stringBody struct {
	w    io.Writer
	tail []byte
}

func (s *stringBody) Write(p []byte) (int, error) {
	data := append(slices.Clip(s.tail), p...)
	whole := len(data) - openRune(data)
	s.tail = slices.Clone(data[whole:])
	if _, err := s.w.Write(escape(data[:whole])); err != nil {
		return 0, err
	}
	return len(p), nil
}

// openRune is how many bytes at the end of data begin a rune that is longer.
func openRune(data []byte) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(data)); n++ {
		end := data[len(data)-n:]
		if utf8.RuneStart(end[0]) {
			if utf8.FullRune(end) {
				return 0
			}
			return n
		}
	}
	return 0
}

func escape(data []byte) []byte {
	quoted, err := json.Marshal(string(data))
	if err != nil {
		return nil // never: any string can be written
	}
	return quoted[1 : len(quoted)-1]
}
