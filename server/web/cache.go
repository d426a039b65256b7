package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"
)

const (
	// maxShared is how many rendered pages are cached; those of a board have 100 KB.
	maxShared = 200

	// sharedLife is how long a page is used at most: places in line and the ages of
	// submissions change without a signal, and a signal may get lost.
	sharedLife = time.Second
)

// A rendered page is one that can be sent to several viewers.
type rendered struct {
	body   []byte
	zipped []byte // nil: it is sent to one viewer only
	tag    string // ETag; a weak one, as it holds for both
}

func newRendered(body []byte) *rendered {
	sum := sha256.Sum256(body)
	return &rendered{body: body, tag: `W/"` + hex.EncodeToString(sum[:12]) + `"`}
}

// send answers with a page, or with 304 if the client has it.
func (p *rendered) send(r *request, status int) {
	h := r.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Add("Vary", "Cookie")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-cache")
		if r.viewer.Known() || status >= 400 {
			h.Set("Cache-Control", "no-store")
		}
	}
	if status == http.StatusOK {
		h.Set("ETag", p.tag)
		if r.Header.Get("If-None-Match") == p.tag {
			r.w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	body := p.body
	if p.zipped != nil {
		h.Add("Vary", "Accept-Encoding")
		if acceptsGzip.MatchString(r.Header.Get("Accept-Encoding")) {
			h.Set("Content-Encoding", "gzip")
			body = p.zipped
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	r.w.WriteHeader(status)
	_, _ = r.w.Write(body) // the client may have left
}

// acceptsGzip matches the header that browsers send. Other clients get the page
// uncompressed.
var acceptsGzip = regexp.MustCompile(`(^|[ ,])gzip($|,)`)

// compress is for pages that many load and that hold no secret of a viewer.
func (p *rendered) compress() error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err == nil {
		_, err = z.Write(p.body)
	}
	if err == nil {
		err = z.Close()
	}
	p.zipped = b.Bytes()
	return err
}

// shared caches pages for viewers that are not logged in, who all see the same. A page
// is rendered again after a signal of one of the kinds, so that clients told of a
// change see it.
type shared struct {
	mu    sync.Mutex
	pages map[string]*sharedPage // by request URI
}

type sharedPage struct {
	rendering chan struct{} // 1 deep: a lock that a request can give up waiting for
	page      *rendered
	changes   uint64
	until     time.Time
}

// plainQuery matches the queries that pages understand. Pages with other queries are not
// cached, because a client can invent any number of them.
var plainQuery = regexp.MustCompile(`^(page=[1-9][0-9]{0,3})?$`)

func (s *site) shared(show func(*request) error, kinds ...string) func(*request) error {
	return func(r *request) error {
		if r.viewer.Known() || !plainQuery.MatchString(r.URL.RawQuery) {
			return show(r)
		}
		c := s.cache.at(r.URL.RequestURI())
		select {
		case c.rendering <- struct{}{}:
		case <-r.Context().Done():
			return r.Context().Err()
		}
		page, err := func() (*rendered, error) {
			defer func() { <-c.rendering }()
			changes := s.Backend.Changes(kinds...)
			if c.page != nil && c.changes == changes && s.Now().Before(c.until) {
				return c.page, nil
			}
			once := *r
			once.keep = true
			until := s.Now().Add(sharedLife)
			if err := show(&once); err != nil {
				return nil, err
			}
			if err := once.kept.compress(); err != nil {
				return nil, err
			}
			c.page, c.changes, c.until = once.kept, changes, until
			return c.page, nil
		}()
		if err != nil {
			return err
		}
		page.send(r, http.StatusOK)
		return nil
	}
}

func (c *shared) at(uri string) *sharedPage {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, found := c.pages[uri]; found {
		return p
	}
	if c.pages == nil || len(c.pages) >= maxShared {
		c.pages = map[string]*sharedPage{}
	}
	p := &sharedPage{rendering: make(chan struct{}, 1)}
	c.pages[uri] = p
	return p
}
