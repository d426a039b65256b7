package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	driver "modernc.org/sqlite" // also registers itself, as "sqlite"
)

// maxConns bounds one instance's connections: PostgreSQL allows 100 in all by
// default, and more do not read faster.
const maxConns = 16

// connect opens the database without looking at its version. Only with create is
// a file made that does not exist.
func connect(ctx context.Context, address string, create bool) (*DB, error) {
	scheme, rest, _ := strings.Cut(address, ":")
	switch scheme {
	case "sqlite":
		return connectSQLite(ctx, rest, create)
	case "postgres", "postgresql":
		return connectPostgres(ctx, address)
	}
	return nil, fmt.Errorf("opening the database: got no address this program knows, want sqlite:FILE or postgres://USER@HOST/NAME")
}

func connectSQLite(ctx context.Context, file string, create bool) (*DB, error) {
	if file == "" || strings.ContainsAny(file, "?\x00") {
		return nil, fmt.Errorf("opening the database: got %q, want sqlite:FILE", "sqlite:"+file)
	}
	if _, err := os.Stat(file); err != nil && !create {
		return nil, fmt.Errorf("opening the database: %w", err)
	} else if err != nil {
		// It holds seeds and names: its owner's alone. SQLite's own files beside it
		// take over its mode. A file that is there is not opened here: closing it
		// would end the locks that this process's connections hold.
		f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			f.Close()
		} else if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("opening the database: %w", err)
		}
	}
	// FULL: what was accepted survives a power cut too. One writing connection:
	// several block each other and gain nothing.
	settings := url.Values{"mode": {"rw"}, "_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "busy_timeout(30000)", "cache_size(-65536)"}}
	open := func(conns int, more url.Values) (*sql.DB, error) {
		all := url.Values{}
		for _, values := range []url.Values{settings, more} {
			for k, v := range values {
				all[k] = append(all[k], v...)
			}
		}
		db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+all.Encode())
		if err == nil {
			db.SetMaxOpenConns(conns)
			db.SetMaxIdleConns(conns)
			err = db.PingContext(ctx)
		}
		// The first to open a file switches it to WAL, for which nobody waits by
		// himself.
		for try := 0; busy(err) && try < 500 && ctx.Err() == nil; try++ {
			time.Sleep(10 * time.Millisecond)
			err = db.PingContext(ctx)
		}
		return db, err
	}
	d := &DB{Kind: SQLite, names: strings.NewReplacer("lb.", "", "own.", "kbserve_", "{lock}", "", "{lock but for references}", "", "{skip locked}", "")}
	var err error
	if d.Write, err = open(1, url.Values{"_txlock": {"immediate"}}); err != nil {
		return nil, fmt.Errorf("opening %s: %w", file, err)
	}
	if d.Read, err = open(8, url.Values{"_pragma": {"query_only(1)"}}); err != nil {
		d.Write.Close()
		return nil, fmt.Errorf("opening %s: %w", file, err)
	}
	return d, nil
}

// busy reports whether somebody else holds a lock on the file.
func busy(err error) bool {
	fault, ok := errors.AsType[*driver.Error](err)
	return ok && fault.Code()&0xff == 5 // SQLITE_BUSY
}

// unavailableSQLite reports whether SQLite could not use the file: it is locked for
// too long, read-only, damaged on the way to the disk, full or gone.
func unavailableSQLite(err error) bool {
	fault, ok := errors.AsType[*driver.Error](err)
	return ok && slices.Contains([]int{5, 8, 10, 13, 14}, fault.Code()&0xff) // BUSY, READONLY, IOERR, FULL, CANTOPEN
}

// refusedBySQLite reports whether SQLite found something too large, against a
// constraint, or of another type.
func refusedBySQLite(err error) bool {
	fault, ok := errors.AsType[*driver.Error](err)
	return ok && slices.Contains([]int{18, 19, 20}, fault.Code()&0xff)
}

func connectPostgres(ctx context.Context, address string) (*DB, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("opening the database: its address cannot be used, want postgres://USER@HOST/NAME") // the cause may quote it
	}
	config.RuntimeParams["timezone"] = "UTC"
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	if err := db.PingContext(ctx); err != nil {
		db.Close()
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	return &DB{
		Kind: Postgres, Config: config, Write: db, Read: db,
		names: strings.NewReplacer("lb.", "leaderboard.", "own.", "kbserve.", "{lock}", "FOR UPDATE", "{lock but for references}", "FOR NO KEY UPDATE", "{skip locked}", "FOR UPDATE SKIP LOCKED"),
	}, nil
}
