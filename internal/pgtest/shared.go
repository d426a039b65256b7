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

	once sync.Once
	*Server
	err error
}

// URL makes an empty database. Where there is no PostgreSQL it skips the test.
func (s *Shared) URL(t testing.TB) string {
	t.Helper()
	s.once.Do(func() { s.Server, s.err = Start(s.Durable) })
	if errors.Is(s.err, ErrNone) {
		t.Skipf("NOT RUN: %v", s.err)
	} else if s.err != nil {
		t.Fatal(s.err)
	}
	url, err := s.Database()
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// Stop ends the server, if a test has started it.
func (s *Shared) Stop() error {
	s.once.Do(func() { s.err = ErrNone }) // nobody starts it from here on
	if s.Server == nil {
		return nil
	}
	return s.Server.Stop()
}
