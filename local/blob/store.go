// Package blob keeps the bytes of artifacts on an origin of its own, as the
// service's object store does: agents upload to it and everybody downloads
// from it by signed links, never with a token. It knows neither API.
package blob

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

// LinkLife is how long a download link works.
const LinkLife = 60 * time.Second

// FileField is the form field that carries the bytes; it comes last.
const FileField = "file"

// A Store serves the artifacts of one engine. Its links carry signatures:
// links to upload work while the artifact is new, links to download for
// [LinkLife].
type Store struct {
	engine *engine.Engine
	secret []byte
	base   atomic.Pointer[string]
	leaks  atomic.Int64
	mux    *http.ServeMux
}

// New makes a store. secret signs links, at least 16 random bytes; they expire by
// the engine's clock. Call [Store.SetBase] before any link is asked for.
func New(e *engine.Engine, secret []byte) *Store {
	s := &Store{engine: e, secret: secret, mux: http.NewServeMux()}
	s.SetBase("")
	s.mux.HandleFunc("POST /upload/{id}/{signature}", serve(s.uploadForm))
	s.mux.HandleFunc("GET /artifacts/{id}", serve(s.download)) // and HEAD
	return s
}

// SetBase says where the store is served, "http://localhost:8901" without a
// slash at the end. Use another host name than the APIs have: Go's client
// passes the Authorization header on to redirects within one name.
func (s *Store) SetBase(url string) { s.base.Store(&url) }

// Links makes links of a [Store] that name a host as its caller reached it.
type Links struct {
	store *Store
	base  string
}

// At returns links for a caller whose request named host, with or without a
// port. On loopback and without a host that is the base, which has another name
// than the APIs; anywhere else there is one name only, and the port differs.
func (s *Store) At(host string) Links {
	base := *s.base.Load()
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	addr, err := netip.ParseAddr(host)
	own, parseErr := url.Parse(base)
	if parseErr != nil || host == "" || strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback() {
		return Links{s, base}
	}
	return Links{s, "http://" + net.JoinHostPort(host, own.Port())}
}

// UploadForm is where an artifact is posted as multipart/form-data, its bytes
// in [FileField].
func (l Links) UploadForm(id string) string {
	return l.base + "/upload/" + url.PathEscape(id) + "/" + l.store.sign("upload", id)
}

// DownloadURL is where an artifact can be fetched for [LinkLife] from now.
func (l Links) DownloadURL(id string) string {
	expires := strconv.FormatInt(l.store.engine.Now().Add(LinkLife).Unix(), 10)
	return l.base + "/artifacts/" + url.PathEscape(id) +
		"?expires=" + expires + "&signature=" + l.store.sign("download", id, expires)
}

// Leaks counts requests that carried an Authorization header.
func (s *Store) Leaks() int { return int(s.leaks.Load()) }

// ServeHTTP refuses every request that carries an Authorization header, for
// this is where a token must never arrive.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		s.leaks.Add(1)
		refuse(w, wrong("got an Authorization header: a token was sent to the artifact store"))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// sign covers what a link allows and to which artifact.
func (s *Store) sign(parts ...string) string {
	mac := hmac.New(sha256.New, s.secret)
	for _, p := range parts {
		fmt.Fprintf(mac, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

func (s *Store) signed(signature string, parts ...string) bool {
	return hmac.Equal([]byte(signature), []byte(s.sign(parts...)))
}

// serve answers with what fn writes, or with its error.
func serve(fn func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := fn(w, r); err != nil {
			refuse(w, err)
		}
	}
}

// wrong is what the caller did wrong.
func wrong(format string, args ...any) error {
	return engine.Refuse(engine.BadRequest, format, args...)
}

// refuse answers in the shape of the APIs.
func refuse(w http.ResponseWriter, err error) {
	refused, ok := errors.AsType[*engine.Error](err)
	if !ok {
		refused = engine.Refuse(http.StatusInternalServerError, "the artifact could not be stored")
	}
	body, _ := json.Marshal(refused) // strings always marshal
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(int(refused.Kind))
	_, _ = w.Write(body) // the client is gone if this fails
}
