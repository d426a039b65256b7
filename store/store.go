package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/store/ranking"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNotFound is a row that was named and is not there.
var ErrNotFound = errors.New("not found")

// A Store is one open database. Its methods may be called from many goroutines;
// each that changes something is one transaction.
type Store struct {
	kind  kind
	write *sql.DB // SQLite: one connection
	read  *sql.DB
	names *strings.Replacer

	config    *pgx.ConnConfig // PostgreSQL: for a connection that listens
	listeners listeners       // SQLite: this process's listeners

	rankings  versioned[ranking.Entry]
	histories versioned[Step]
	counts    counts

	now func() time.Time // replaced in tests
}

// kind is what a database speaks.
type kind int

const (
	sqlite kind = iota
	postgres
)

func (k kind) String() string { return [...]string{"SQLite", "PostgreSQL"}[k] }

// Open opens a database that [Migrate] has made or brought up to date. url is
// sqlite:FILE, or postgres://… as libpq takes it.
//
// Errors: a database of another version; one that cannot be reached.
func Open(ctx context.Context, url string) (*Store, error) {
	s, err := connect(ctx, url, false)
	if err != nil {
		return nil, err
	}
	if err := s.upToDate(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends all connections.
func (s *Store) Close() error {
	err := s.write.Close()
	if s.read != s.write {
		err = errors.Join(err, s.read.Close())
	}
	return err
}

// Kind is "SQLite" or "PostgreSQL".
func (s *Store) Kind() string { return s.kind.String() }

// Installation is the id of this database, made when it was migrated first. It
// survives restarts and is the same for all instances.
func (s *Store) Installation(ctx context.Context) (id string, err error) {
	err = s.row(ctx, s.read, `SELECT id FROM own.installation`).Scan(&id)
	return id, wrap("reading the installation id", err)
}

// q puts the names of tables and the locking clauses of this kind of database
// into a statement: lb. is Kernelbot's schema, own. is ours.
func (s *Store) q(statement string) string { return s.names.Replace(statement) }

// A querier is a connection pool or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *Store) exec(ctx context.Context, on querier, statement string, args ...any) (int64, error) {
	result, err := on.ExecContext(ctx, s.q(statement), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (s *Store) row(ctx context.Context, on querier, statement string, args ...any) *sql.Row {
	return on.QueryRowContext(ctx, s.q(statement), args...)
}

// each calls scan for every row of a query.
func (s *Store) each(ctx context.Context, on querier, scan func(*sql.Rows) error, statement string, args ...any) error {
	rows, err := on.QueryContext(ctx, s.q(statement), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// values reads the one column of a query.
func values[T any](ctx context.Context, s *Store, on querier, statement string, args ...any) (all []T, err error) {
	err = s.each(ctx, on, func(rows *sql.Rows) error {
		var v T
		err := rows.Scan(&v)
		all = append(all, v)
		return err
	}, statement, args...)
	return all, err
}

// conflicts are PostgreSQL's codes for what others did meanwhile: a deadlock, a
// state that is no more, a row that was referred to and has gone.
var conflicts = []string{"40P01", "40001", "23503"}

// errAgain undoes a transaction and begins it anew.
var errAgain = errors.New("others came between")

// change runs do in a transaction; an error undoes all of it. Where others
// came between (conflicts, errAgain), do runs again.
func (s *Store) change(ctx context.Context, what string, do func(tx *sql.Tx) error) error {
	for try := 1; ; try++ {
		err := s.changeOnce(ctx, do)
		var conflict *pgconn.PgError
		again := errors.Is(err, errAgain) || errors.As(err, &conflict) && slices.Contains(conflicts, conflict.Code)
		if try == 5 || !again {
			return wrap(what, err)
		}
	}
}

func (s *Store) changeOnce(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing after Commit
	err = do(tx)
	signals := s.listeners.told(tx)
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.listeners.send(signals...)
	return nil
}

// snapshot runs do on one state of the database.
func (s *Store) snapshot(ctx context.Context, what string, do func(tx *sql.Tx) error) error {
	options := &sql.TxOptions{ReadOnly: true}
	if s.kind == postgres {
		options.Isolation = sql.LevelRepeatableRead
	}
	tx, err := s.read.BeginTx(ctx, options)
	if err != nil {
		return wrap(what, err)
	}
	defer tx.Rollback()
	return wrap(what, do(tx))
}

// Unstorable reports whether a database refused what was to be kept, for what it is:
// it will refuse it again.
func Unstorable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23") // data, constraints
	}
	var value *json.UnsupportedValueError // a number that is none
	return errors.As(err, &value) || refusedBySQLite(err)
}

// wrap says what was being done. A refusal speaks for itself.
func wrap(what string, err error) error {
	var refused *Refused
	switch {
	case err == nil, errors.As(err, &refused):
		return err
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// stamp is a point in time as both databases keep and order it.
type stamp struct{ time.Time }

const stampLayout = "2006-01-02 15:04:05.000000+00"

func (t stamp) Value() (driver.Value, error) {
	return t.UTC().Format(stampLayout), nil
}

func (t *stamp) Scan(v any) (err error) {
	switch v := v.(type) {
	case time.Time:
		t.Time = v.UTC()
	case string:
		t.Time, err = time.Parse(stampLayout, v)
	case nil:
		t.Time = time.Time{}
	default:
		err = fmt.Errorf("a time: got %T", v)
	}
	return err
}

// newID returns 128 random bits in hex.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
