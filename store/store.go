package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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

// Recheck compares the version of the open database with this program's: see
// [database.DB.Recheck].
func (s *Store) Recheck(ctx context.Context) (other *database.VersionError, err error) {
	return s.db.Recheck(ctx)
}

// Installation is the id of this database, made when it was migrated first. It
// survives restarts and is the same for all instances.
func (s *Store) Installation(ctx context.Context) (id string, err error) {
	err = s.read(ctx, "reading the installation id", func(t *tx) { t.get(dest{&id}, `SELECT id FROM own.installation`) })
	return id, err
}

// wrap says what was being done. A refusal speaks for itself.
func wrap(what string, err error) error {
	if _, refused := errors.AsType[*Refusal](err); err == nil || refused {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// clock is the time that leases are counted in: the database's own if several
// machines share it.
func (t *tx) clock() time.Time {
	if t.db.Kind == database.SQLite {
		return t.now()
	}
	return value[time.Time](t, `SELECT clock_timestamp()`)
}

// A tx is a transaction, or a connection that only reads, as the store's functions
// use it. It keeps the first error and runs no statement after one, so that a
// function looks at err only where it does something else than run statements. What
// follows an error is undone with the transaction.
type tx struct {
	*Store
	ctx     context.Context
	on      database.Querier
	err     error
	signals []Signal // SQLite: sent once the transaction is committed
}

// fail ends the transaction with err, unless it has failed before.
func (t *tx) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// refuse ends the transaction with a [Refusal].
func (t *tx) refuse(why Why, format string, args ...any) {
	t.fail(NewRefusal(why, format, args...))
}

// exec runs a statement and returns how many rows it changed. A time among args is
// kept as [database.Stamp].
func (t *tx) exec(statement string, args ...any) (n int64) {
	if t.err == nil {
		n, t.err = t.db.Exec(t.ctx, t.on, statement, stamped(args)...)
	}
	return n
}

// insert writes rows, many in one statement; into names the table and its columns.
func (t *tx) insert(into string, rows [][]any) {
	for part := range slices.Chunk(rows, 500) {
		var values []string
		var args []any
		for _, row := range part {
			values = append(values, "("+placeholders(len(args), len(row))+")")
			args = append(args, row...)
		}
		t.exec(`INSERT INTO `+into+` VALUES `+strings.Join(values, ", "), args...)
	}
}

// placeholders are those of n arguments after the first ones.
func placeholders(first, n int) string {
	marks := make([]string, n)
	for i := range marks {
		marks[i] = "$" + strconv.Itoa(first+i+1)
	}
	return strings.Join(marks, ", ")
}

// A dest is the list of pointers to what the columns of a row are read into.
type dest []any

// find reads the row of a query for at most one, and reports whether there is one.
func (t *tx) find(into dest, statement string, args ...any) bool {
	if t.err != nil {
		return false
	}
	err := t.db.Row(t.ctx, t.on, statement, stamped(args)...).Scan(stamped(into)...)
	if !errors.Is(err, sql.ErrNoRows) {
		t.err = err
	}
	return err == nil
}

// get reads the row of a query. Without one, the transaction fails with
// [ErrNotFound].
func (t *tx) get(into dest, statement string, args ...any) {
	if !t.find(into, statement, args...) {
		t.fail(ErrNotFound)
	}
}

// value reads the one column of the row of a query, see [tx.get].
func value[T any](t *tx, statement string, args ...any) (v T) {
	t.get(dest{&v}, statement, args...)
	return v
}

// each reads the rows of a query, one after the other into the same variables, and
// calls do after each.
func (t *tx) each(into dest, do func(), statement string, args ...any) {
	if t.err != nil {
		return
	}
	into = stamped(into)
	t.err = t.db.Each(t.ctx, t.on, func(rows *sql.Rows) error {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		do()
		return t.err
	}, statement, stamped(args)...)
}

// values reads the one column of a query.
func values[T any](t *tx, statement string, args ...any) (all []T) {
	var v T
	t.each(dest{&v}, func() { all = append(all, v) }, statement, args...)
	return all
}

// stamped puts [database.Stamp] in the place of times.
func stamped(values []any) []any {
	out := make([]any, len(values))
	for i, v := range values {
		switch at := v.(type) {
		case time.Time:
			out[i] = database.Stamp(at)
		case *time.Time:
			out[i] = (*database.Stamp)(at)
		default:
			out[i] = v
		}
	}
	return out
}

// change runs do in a transaction, see [database.DB.Change], and sends the signals
// that it left once the transaction is committed.
func (s *Store) change(ctx context.Context, what string, do func(*tx)) error {
	var signals []Signal
	err := s.db.Change(ctx, func(on *sql.Tx) error {
		t := &tx{Store: s, ctx: ctx, on: on}
		do(t)
		signals = t.signals
		return t.err
	})
	if err == nil {
		s.listeners.send(signals...)
	}
	return wrap(what, err)
}

// snapshot runs do on one state of the database.
func (s *Store) snapshot(ctx context.Context, what string, do func(*tx)) error {
	return wrap(what, s.db.Snapshot(ctx, func(on *sql.Tx) error {
		t := &tx{Store: s, ctx: ctx, on: on}
		do(t)
		return t.err
	}))
}

// read runs do, which has one query, without a transaction.
func (s *Store) read(ctx context.Context, what string, do func(*tx)) error {
	t := &tx{Store: s, ctx: ctx, on: s.db.Read}
	do(t)
	return wrap(what, t.err)
}

// Why says what a [Refusal] is about, for whoever turns it into a status.
type Why int

const (
	Invalid      Why = iota // the request itself cannot be used
	UnknownBoard            //
	UnknownGPU              // not one of the board's
	UnknownUser             //
	Banned                  // the user
	NotInvited              // to a closed board
	AfterDeadline
	OverLimit     // RetryAfter says when it may be tried again
	Finished      // what was to be stopped
	HasCLIID      // and nobody said that it may be replaced
	UnknownInvite //
	InviteTaken   // by somebody else
	OtherProvider // the id belongs to an account at another provider, or to a user whom the command made
)

// A Refusal is a request that was understood and is not done. Nothing was stored.
type Refusal struct {
	Why        Why
	Text       string        // one line for the user
	RetryAfter time.Duration // of OverLimit
}

func (r *Refusal) Error() string { return r.Text }

// NewRefusal makes a [Refusal] with its text formatted.
func NewRefusal(why Why, format string, args ...any) *Refusal {
	return &Refusal{Why: why, Text: fmt.Sprintf(format, args...)}
}

// Names in own.setting. Those of [Store.Secret] begin with secretPrefix.
const (
	settingAccepting = "accepting"
	settingAbout     = "about"
	secretPrefix     = "secret:"
)

// Accepting reports whether submissions are taken: they are, unless an admin has
// said otherwise.
func (s *Store) Accepting(ctx context.Context) (accepting bool, err error) {
	err = s.read(ctx, "reading whether submissions are taken", func(t *tx) { accepting = t.setting(settingAccepting) != "no" })
	return accepting, err
}

// SetAccepting says for all instances whether submissions are taken.
func (s *Store) SetAccepting(ctx context.Context, accepting bool) error {
	value := "yes"
	if !accepting {
		value = "no"
	}
	return s.change(ctx, "saying whether submissions are taken", func(t *tx) {
		t.exec(`INSERT INTO own.setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, settingAccepting, value)
	})
}

// MaxAbout is the largest text about a competition, in bytes.
const MaxAbout = 50_000

// About returns the organizer's text about the competition, in Markdown; "" for none.
func (s *Store) About(ctx context.Context) (about string, err error) {
	err = s.read(ctx, "reading the text about the competition", func(t *tx) { about = t.setting(settingAbout) })
	return about, err
}

// SetAbout replaces the text about the competition; "" removes it.
//
// Errors: [*Refusal] with Invalid.
func (s *Store) SetAbout(ctx context.Context, about string) error {
	if len(about) > MaxAbout || !utf8.ValidString(about) || strings.ContainsRune(about, 0) {
		return NewRefusal(Invalid, "text: got %d bytes, want at most %d of UTF-8 without U+0000", len(about), MaxAbout)
	}
	return s.change(ctx, "replacing the text about the competition", func(t *tx) {
		t.exec(`INSERT INTO own.setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, settingAbout, about)
		t.tell(Signal{Kind: SignalBoard}) // the start page shows it
	})
}

// Secret returns 32 random bytes that are kept under a name: made when they are
// asked for first, and the same for all instances and restarts.
func (s *Store) Secret(ctx context.Context, name string) (secret []byte, err error) {
	what := "reading a kept secret"
	var value string
	err = s.read(ctx, what, func(t *tx) { value = t.setting(secretPrefix + name) })
	if err == nil && value == "" {
		err = s.change(ctx, "keeping a secret", func(t *tx) {
			var b [32]byte
			rand.Read(b[:]) // never fails
			t.exec(`INSERT INTO own.setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, secretPrefix+name, hex.EncodeToString(b[:]))
			value = t.setting(secretPrefix + name) // of two at once, the first
		})
	}
	if err != nil {
		return nil, err
	}
	secret, err = hex.DecodeString(value)
	if err != nil || len(secret) != 32 {
		return nil, fmt.Errorf("%s: got something else than 32 bytes in hex", what)
	}
	return secret, nil
}

// setting is a kept value, "" for none.
func (t *tx) setting(name string) (value string) {
	t.find(dest{&value}, `SELECT value FROM own.setting WHERE name = $1`, name)
	return value
}

const settingHook = "webhook seen"

// SawEvent keeps that an event of Buildkite's came at the time of at.
func (s *Store) SawEvent(ctx context.Context, at time.Time) error {
	return s.change(ctx, "keeping when an event came", func(t *tx) {
		t.exec(`INSERT INTO own.setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
			settingHook, at)
	})
}

// Events returns when an event of Buildkite's came last, and when a run finished
// last; zero: none ever did.
func (s *Store) Events(ctx context.Context) (event, finished time.Time, err error) {
	err = s.snapshot(ctx, "reading when events came", func(t *tx) {
		t.find(dest{&event}, `SELECT value FROM own.setting WHERE name = $1`, settingHook)
		t.get(dest{&finished}, `SELECT max(finished_at) FROM own.planned_run`)
	})
	return event, finished, err
}
