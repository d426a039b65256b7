package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// ErrNotFound is a row that was named and is not there.
var ErrNotFound = errors.New("not found")

// A Store is one open database. Its methods may be called from many goroutines;
// each that changes something is one transaction.
type Store struct {
	db        *database.DB
	listeners listeners // SQLite: this process's listeners

	rankings  versioned[ranking.Entry]
	histories versioned[Step]
	counts    counts

	now func() time.Time // replaced in tests
}

// Open opens a database that [database.Migrate] has made or brought up to date.
// url is sqlite:FILE, or postgres://… as libpq takes it.
//
// Errors: a database of another version; one that cannot be reached.
func Open(ctx context.Context, url string) (*Store, error) {
	db, err := database.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return &Store{db: db, now: time.Now}, nil
}

// Close ends all connections.
func (s *Store) Close() error { return s.db.Close() }

// Kind is "SQLite" or "PostgreSQL".
func (s *Store) Kind() string { return s.db.Kind.String() }

// Backup writes one state of a SQLite store into a new file: see
// [database.DB.Backup].
func (s *Store) Backup(ctx context.Context, file string) error { return s.db.Backup(ctx, file) }

// Convert copies a SQLite store into an empty PostgreSQL one and makes the
// standings there. It returns the number of rows by table.
func Convert(ctx context.Context, from, to *Store) (map[string]int64, error) {
	rows, err := database.Convert(ctx, from.db, to.db)
	if err == nil {
		_, err = to.Rebuild(ctx)
	}
	return rows, err
}

// Installation is the id of this database, made when it was migrated first. It
// survives restarts and is the same for all instances.
func (s *Store) Installation(ctx context.Context) (id string, err error) {
	err = s.read(ctx, "reading the installation id", func(t *tx) { t.get(to{&id}, `SELECT id FROM own.installation`) })
	return id, err
}

// wrap says what was being done. A refusal speaks for itself.
func wrap(what string, err error) error {
	var refused *Refusal
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// clock is the time that leases are counted in: the database's own if several
// machines share it.
func (t *tx) clock() (now time.Time) {
	if t.db.Kind == database.SQLite {
		return t.now()
	}
	t.get(to{&now}, `SELECT clock_timestamp()`)
	return now
}
