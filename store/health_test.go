package store

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// A database that takes no writes is told from a request that cannot be stored.
func TestUnavailable(t *testing.T) {
	s := migrated(t, sqliteURL(t))
	if err := s.CheckWrite(t.Context()); err != nil {
		t.Fatal(err)
	}
	page := 0
	if err := s.db.Write.QueryRow(`PRAGMA page_count`).Scan(&page); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ on, off string }{{"query_only(1)", "query_only(0)"}, {fmt.Sprintf("max_page_count(%d)", page), "max_page_count(1000000)"}} {
		if _, err := s.db.Write.Exec("PRAGMA " + c.on); err != nil {
			t.Fatal(err)
		}
		// Rows that were removed leave room: fill it first.
		var err error
		for i := 0; err == nil && i < 1000; i++ {
			_, err = s.db.Write.Exec(`INSERT INTO kbserve_setting (name, value) VALUES ($1, hex(zeroblob(1000)))`, fmt.Sprint(c.on, i))
		}
		if err = s.CheckWrite(t.Context()); !Unavailable(err) {
			t.Errorf("with %s: %v, want an error that says that the database is unavailable", c.on, err)
		}
		if _, err := s.db.Write.Exec("PRAGMA " + c.off); err != nil {
			t.Fatal(err)
		}
		if err := s.CheckWrite(t.Context()); err != nil {
			t.Errorf("after %s: %v", c.off, err)
		}
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {io.EOF, false}, {ErrNotFound, false}, {errors.Join(&pgconn.PgError{Code: "53100"}), true}, {&pgconn.PgError{Code: "25006"}, true},
		{&pgconn.PgError{Code: "57P03"}, true}, {&pgconn.PgError{Code: "23505"}, false}, {&pgconn.PgError{}, false}, {&pgconn.ConnectError{}, true},
	} {
		if got := Unavailable(c.err); got != c.want {
			t.Errorf("Unavailable(%v) = %v", c.err, got)
		}
	}
}
