package fault

import (
	"cmp"
	"errors"
	"net/http"
)

// A void is a ResponseWriter that drops the answer.
type void struct{ header http.Header }

func newVoid() *void { return &void{header: http.Header{}} }

func (v *void) Header() http.Header         { return v.header }
func (v *void) Write(p []byte) (int, error) { return len(p), nil }
func (v *void) WriteHeader(int)             {}
func (v *void) Flush()                      {}

var errCut = errors.New("fault: the answer was cut")

// A cutWriter sends the first bytes of a body and then fails, so that streams
// end as well.
type cutWriter struct {
	http.ResponseWriter
	left int
	done bool
}

// Write sends p, or its beginning and an error.
func (c *cutWriter) Write(p []byte) (int, error) {
	if c.done {
		return 0, errCut
	}
	if len(p) <= c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	n, err := c.ResponseWriter.Write(p[:c.left])
	c.done = true
	_ = http.NewResponseController(c.ResponseWriter).Flush() // what cannot be flushed is lost anyway
	return n, cmp.Or(err, errCut)
}

// FlushError passes a flush on.
func (c *cutWriter) FlushError() error {
	if c.done {
		return errCut
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Flush is FlushError for those who ask for an http.Flusher.
func (c *cutWriter) Flush() { _ = c.FlushError() }

// Unwrap lets an http.ResponseController reach deadlines and hijacks.
func (c *cutWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
