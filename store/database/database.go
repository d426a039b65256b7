// Package database opens, migrates and backs up the databases in which the store
// keeps boards and submissions, SQLite or PostgreSQL, and runs statements and
// transactions on them. It knows the tables, and not what their rows mean.
package database

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A DB is one open database. Its methods may be called from many goroutines.
type DB struct {
	Kind   Kind
	Write  *sql.DB // SQLite: one connection
	Read   *sql.DB
	Config *pgx.ConnConfig // PostgreSQL: for a connection that listens

	names *strings.Replacer
}

// A Kind is what a database speaks.
type Kind int

const (
	SQLite Kind = iota
	Postgres
)

func (k Kind) String() string { return [...]string{"SQLite", "PostgreSQL"}[k] }

// Open opens a database that [Migrate] has made or brought up to date.
//
// Errors: [VersionError]; a database that cannot be reached.
func Open(ctx context.Context, url string) (*DB, error) {
	d, err := connect(ctx, url, false)
	if err != nil {
		return nil, err
	}
	if err := d.upToDate(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Close ends all connections.
func (d *DB) Close() error {
	err := d.Write.Close()
	if d.Read != d.Write {
		err = errors.Join(err, d.Read.Close())
	}
	return err
}

// Q puts the names of tables and the locking clauses of this kind of database
// into a statement: lb. is Kernelbot's schema, own. is ours.
func (d *DB) Q(statement string) string { return d.names.Replace(statement) }

// A Querier is a connection pool or a transaction.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Exec runs a statement and returns how many rows it changed.
func (d *DB) Exec(ctx context.Context, on Querier, statement string, args ...any) (int64, error) {
	result, err := on.ExecContext(ctx, d.Q(statement), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Row runs a query for one row.
func (d *DB) Row(ctx context.Context, on Querier, statement string, args ...any) *sql.Row {
	return on.QueryRowContext(ctx, d.Q(statement), args...)
}

// Each calls scan for every row of a query.
func (d *DB) Each(ctx context.Context, on Querier, scan func(*sql.Rows) error, statement string, args ...any) error {
	rows, err := on.QueryContext(ctx, d.Q(statement), args...)
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

// conflicts are PostgreSQL's codes for what other transactions did meanwhile: a
// deadlock, a state that is out of date, a reference to a row that has gone.
var conflicts = []string{"40P01", "40001", "23503"}

// ErrConflict undoes a transaction and begins it again.
var ErrConflict = errors.New("another transaction came between")

// Change runs do in a transaction; an error undoes all of it. After a conflict
// (conflicts, ErrConflict), do runs again, five times at most.
func (d *DB) Change(ctx context.Context, do func(tx *sql.Tx) error) error {
	for try := 1; ; try++ {
		err := d.changeOnce(ctx, do)
		var conflict *pgconn.PgError
		again := errors.Is(err, ErrConflict) || errors.As(err, &conflict) && slices.Contains(conflicts, conflict.Code)
		if try == 5 || !again {
			return err
		}
	}
}

func (d *DB) changeOnce(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := d.Write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing after Commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Snapshot runs do on one state of the database.
func (d *DB) Snapshot(ctx context.Context, do func(tx *sql.Tx) error) error {
	options := &sql.TxOptions{ReadOnly: true}
	if d.Kind == Postgres {
		options.Isolation = sql.LevelRepeatableRead
	}
	tx, err := d.Read.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return do(tx)
}

// Unstorable reports whether a database refused what was to be kept, for what it is:
// it will refuse it again.
func Unstorable(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23") // data, constraints
	}
	_, noNumber := errors.AsType[*json.UnsupportedValueError](err)
	return noNumber || refusedBySQLite(err)
}

// Unavailable reports whether an error is about the database as a whole and may pass:
// no connection, no space, no permission to write.
func Unavailable(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Classes 08, 53, 57 and 58: connection, resources, operator, system. 25006: read-only.
		return slices.Contains([]string{"08", "53", "57", "58"}, pg.Code[:min(2, len(pg.Code))]) || pg.Code == "25006"
	}
	_, noConnection := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[*net.OpError](err)
	return noConnection || network || errors.Is(err, driver.ErrBadConn) || unavailableSQLite(err)
}

// A Stamp is a point in time as both databases keep and order it.
type Stamp time.Time

const stampLayout = "2006-01-02 15:04:05.000000+00"

func (t Stamp) Value() (driver.Value, error) {
	return time.Time(t).UTC().Format(stampLayout), nil
}

func (t *Stamp) Scan(v any) (err error) {
	var at time.Time
	switch v := v.(type) {
	case time.Time:
		at = v.UTC()
	case string:
		at, err = time.Parse(stampLayout, v)
	case nil:
	default:
		err = fmt.Errorf("a time: got %T", v)
	}
	*t = Stamp(at)
	return err
}

// NewID returns 128 random bits in hex.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
