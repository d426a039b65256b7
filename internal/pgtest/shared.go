package pgtest

import (
	"errors"
	"sync"
	"testing"
)

// A Shared server serves all tests of a package. It starts with the first that needs
// it; the package's TestMain calls Stop. The zero value is ready.
type Shared struct {
	Durable bool // writes are forced to the disk

	once   sync.Once
	server *Server
	err    error
}

// URL makes an empty database. Where there is no PostgreSQL it skips the test.
func (s *Shared) URL(t testing.TB) string {
	t.Helper()
	s.once.Do(func() { s.server, s.err = Start(s.Durable) })
	if errors.Is(s.err, ErrNone) {
		t.Skipf("NOT RUN: %v", s.err)
	} else if s.err != nil {
		t.Fatal(s.err)
	}
	url, err := s.server.Database()
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// Stop ends the server, if a test has started it.
func (s *Shared) Stop() error {
	s.once.Do(func() { s.err = ErrNone }) // nobody starts it from here on
	if s.server == nil {
		return nil
	}
	return s.server.Stop()
}

// Exec runs statements in a database that URL has made.
func (s *Shared) Exec(url, statements string) error { return s.server.Exec(url, statements) }

// Copy makes a database of what another holds, see [Server.Copy].
func (s *Shared) Copy(url string) (string, error) { return s.server.Copy(url) }
