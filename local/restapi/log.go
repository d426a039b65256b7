package restapi

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
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
	in := bufio.NewReader(io.LimitReader(file, size))
	var text []byte
	for err == nil {
		var r rune
		if r, _, err = in.ReadRune(); err == nil {
			text = utf8.AppendRune(text, r)
		}
		if err != nil || len(text) >= 32<<10 {
			quoted, _ := json.Marshal(string(text)) // any string can be written
			if _, err := c.w.Write(quoted[1 : len(quoted)-1]); err != nil {
				return c.sent(err)
			}
			text = text[:0]
		}
	}
	if !errors.Is(err, io.EOF) {
		return c.sent(err)
	}
	_, err = fmt.Fprintf(c.w, `","size":%d,"header_times":[]}`, size)
	return c.sent(err)
}
