package pgtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A Shared server serves all tests of a package. It starts with the first that needs
// it; the package's TestMain calls Stop. The zero value is ready.
type Shared struct {
	Durable bool // writes are forced to the disk

	*Server // nil before the first test
	once    sync.Once
	err     error

	template   sync.Once
	source     string // what Clone copies
	unprepared error
	sqlite     []byte // the file that SQLite copies
	sqliteOnce sync.Once
	sqliteErr  error
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

// Clone makes a database that is a copy of one that prepare has filled, once for all
// copies, and returns its URL.
func (s *Shared) Clone(t testing.TB, prepare func(url string) error) string {
	t.Helper()
	s.template.Do(func() {
		s.source = s.URL(t)
		s.unprepared = prepare(s.source)
	})
	if s.unprepared != nil {
		t.Fatal(s.unprepared)
	}
	if s.source == "" {
		t.Skip("NOT RUN: no PostgreSQL, as another test said")
	}
	url, err := s.database("--template", nameOf(s.source))
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// nameOf is the name of a database of this server in its URL.
func nameOf(address string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(address, "postgres://"+owner+"@/"), "?")
	return name
}

// Stop ends the server, if a test has started it.
func (s *Shared) Stop() error {
	s.once.Do(func() { s.err = ErrNone }) // nobody starts it from here on
	if s.Server == nil {
		return nil
	}
	return s.Server.Stop()
}

// SQLite makes a SQLite file that is a copy of one that prepare has filled, once for
// all copies, and returns its URL.
func (s *Shared) SQLite(t testing.TB, prepare func(url string) error) string {
	t.Helper()
	s.sqliteOnce.Do(func() {
		file := filepath.Join(t.TempDir(), "kb.db")
		if s.sqliteErr = prepare("sqlite:" + file); s.sqliteErr == nil {
			s.sqlite, s.sqliteErr = os.ReadFile(file)
		}
	})
	file := filepath.Join(t.TempDir(), "kb.db")
	err := s.sqliteErr
	if err == nil {
		err = os.WriteFile(file, s.sqlite, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + file
}
