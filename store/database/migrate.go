package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/gpu-mode/kbgen/store/database/migrations"
)

// Migrate makes the tables, or brings them up to this program's version. A
// database that Kernelbot's own migrations made keeps its tables and rows.
// Several may call it at once. It returns the versions before and after.
//
// Errors: a database that is newer than this program; tables of Kernelbot's that
// lack a column.
func Migrate(ctx context.Context, url string) (before, after int64, err error) {
	d, err := connect(ctx, url, true)
	if err != nil {
		return 0, 0, err
	}
	defer d.Close()
	if d.Kind == Postgres {
		if _, err := d.Exec(ctx, d.Write, `CREATE SCHEMA IF NOT EXISTS kbserve`); err != nil && !strings.Contains(err.Error(), "23505") { // somebody else just did
			return 0, 0, fmt.Errorf("migrating: %w", err)
		}
	}
	p, err := d.provider()
	if err != nil {
		return 0, 0, err
	}
	before, newest, err := p.GetVersions(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("migrating: %w", err)
	}
	if before > newest {
		return before, before, &VersionError{before, newest}
	}
	// PostgreSQL has a lock for this. With SQLite, whoever comes second fails on the
	// first table that is there, and finds less to do the next time.
	for try := 0; ; try++ {
		_, err := p.Up(ctx)
		if err == nil {
			break
		}
		if d.Kind == Postgres || try == 5 {
			return before, before, fmt.Errorf("migrating: %w", err)
		}
	}
	if err := d.columns(ctx); err != nil {
		return before, newest, err
	}
	return before, newest, d.Change(ctx, func(tx *sql.Tx) error {
		_, err := d.Exec(ctx, tx, `INSERT INTO own.installation (one, id, created_at) VALUES (1, $1, $2) ON CONFLICT (one) DO NOTHING`, NewID(), Stamp(time.Now()))
		return err
	})
}

func (d *DB) provider() (*goose.Provider, error) {
	folder, dialect, table := "sqlite", goose.DialectSQLite3, "kbserve_goose_version"
	options := []goose.ProviderOption{}
	if d.Kind == Postgres {
		folder, dialect, table = "postgres", goose.DialectPostgres, "kbserve.goose_version"
		locker, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return nil, err
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	files, err := fs.Sub(migrations.FS, folder)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(dialect, d.Write, files, append(options, goose.WithTableName(table))...)
}

// upToDate checks the version and Kernelbot's columns, without changing anything.
func (d *DB) upToDate(ctx context.Context) error {
	version, err := d.version(ctx)
	if err != nil {
		return err
	}
	if version.Got != version.Want {
		return version
	}
	return d.columns(ctx)
}

// Recheck compares the version of an open database with this program's, because a newer
// program may have migrated the database meanwhile. It returns nil if they are equal.
// Migrations only add, so this program can go on if every column that it uses is there.
//
// Errors: [ErrIncompatible]; a database that cannot be reached.
func (d *DB) Recheck(ctx context.Context) (other *VersionError, err error) {
	version, err := d.version(ctx)
	if err != nil || version.Got == version.Want {
		return nil, err
	}
	err = d.columns(ctx)
	if err != nil && ctx.Err() == nil && !Unavailable(err) {
		err = fmt.Errorf("%w: %w: %w", ErrIncompatible, version, err)
	}
	return version, err
}

// ErrIncompatible is an open database that another program changed so that this one
// cannot use it any more.
var ErrIncompatible = errors.New("this program cannot use the database any more")

// version reads the database's version, and this program's.
func (d *DB) version(ctx context.Context) (*VersionError, error) {
	p, err := d.provider()
	if err != nil {
		return nil, err
	}
	v := &VersionError{}
	for _, source := range p.ListSources() {
		v.Want = max(v.Want, source.Version)
	}
	known, err := d.exists(ctx, d.names.Replace("own.goose_version"))
	if err == nil && known {
		err = d.Row(ctx, d.Read, `SELECT coalesce(max(version_id), 0) FROM own.goose_version WHERE is_applied`).Scan(&v.Got)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the database's version: %w", err)
	}
	return v, nil
}

// A VersionError is a database that this program cannot use as it is.
type VersionError struct{ Got, Want int64 }

func (e *VersionError) Error() string {
	text := fmt.Sprintf("the database has version %d, want %d", e.Got, e.Want)
	if e.Got > e.Want {
		text += ": a newer kbserve has migrated it; use that one"
	}
	return text
}

func (d *DB) exists(ctx context.Context, table string) (found bool, err error) {
	statement := `SELECT count(*) > 0 FROM sqlite_master WHERE name = $1`
	if d.Kind == Postgres {
		statement = `SELECT to_regclass($1) IS NOT NULL`
	}
	err = d.Row(ctx, d.Read, statement, table).Scan(&found)
	return found, err
}

// tables are Kernelbot's, with the columns that are used here, in an order in
// which they can be filled.
var tables = []struct {
	name    string
	serial  bool
	columns []string
}{
	{"lb.leaderboard", true, []string{"id", "name", "deadline", "task", "creator_id", "forum_id", "secret_seed", "description", "visibility"}},
	{"lb.gpu_type", false, []string{"leaderboard_id", "gpu_type"}},
	{"lb.templates", true, []string{"id", "leaderboard_id", "lang", "code"}},
	{"lb.user_info", false, []string{"id", "user_name", "cli_id", "cli_valid", "cli_auth_provider", "created_at", "web_auth_id", "is_banned"}},
	{"lb.draft_code", true, []string{"id", "leaderboard_id", "user_id", "type", "code", "created_at", "last_modified_at"}},
	{"lb.code_files", true, []string{"id", "code", "hash"}},
	{"lb.submission", true, []string{"id", "leaderboard_id", "file_name", "user_id", "code_id", "submission_time", "done", "status", "mode_category"}},
	{"lb.runs", true, []string{"id", "submission_id", "start_time", "end_time", "mode", "secret", "runner", "score", "passed", "compilation", "meta", "result", "system_info"}},
	{"lb.submission_job_status", true, []string{"id", "submission_id", "status", "error", "created_at", "last_heartbeat"}},
	{"lb.rate_limit", true, []string{"id", "leaderboard_id", "mode_category", "max_submissions_per_hour"}},
	{"lb.leaderboard_invite", true, []string{"id", "code", "user_id", "claimed_at", "created_at"}},
	{"lb.leaderboard_invite_scope", false, []string{"invite_id", "leaderboard_id"}},
	{"own.installation", false, []string{"one", "id", "created_at"}},
	{"own.board", false, []string{"leaderboard_id", "harness", "sandbox", "clear_timing", "ties", "task_harness", "show_code", "reuse", "version", "task_extension"}},
	{"own.gpu_limit", false, []string{"leaderboard_id", "gpu", "mode_category", "per_hour"}},
	{"own.accepted", false, []string{"submission_id", "gpu", "mode", "late", "task"}},
	{"own.planned_run", false, []string{"run_id", "submission_id", "gpu", "mode", "secret", "priority", "state", "outcome", "build_number", "build_id", "fence", "lease_owner", "free_at", "created_at", "changed_at", "started_at", "finished_at", "again", "result_outcome"}},
	{"own.run_evidence", false, []string{"run_id", "harness", "self_checked", "sandbox", "ambiguous", "low", "high", "proved"}},
	{"own.report", false, []string{"run_id", "submission_id", "body", "created_at", "task"}},
	{"own.session", false, []string{"hash", "user_id", "created_at", "until"}},
	{"own.link", false, []string{"hash", "user_id", "until"}},
	{"own.account", false, []string{"user_id", "provider"}},
	{"own.begun_run", false, []string{"run_id", "user_id", "gpu", "begun_at"}},
	{"own.setting", false, []string{"name", "value"}},
	{"own.board_change", true, []string{"id", "leaderboard_id", "changed_at", "author", "reason", "field", "old", "new"}},
	{"own.rejudging", false, []string{"leaderboard_id", "started_at", "author", "reason", "ranking"}},
	{"own.announced", false, []string{"leaderboard_id", "gpu", "top"}},
	{"own.hook", false, []string{"submission_id", "delivery", "phase", "tries", "error", "fence", "free_at", "changed_at"}},
}

// columns checks that every column is there that this program uses.
func (d *DB) columns(ctx context.Context) error {
	// Not by SELECT *: PostgreSQL refuses its cached plan after a migration.
	statement := `SELECT name FROM pragma_table_info($1)`
	if d.Kind == Postgres {
		statement = `SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped`
	}
	var faults []error
	for _, table := range tables {
		var have []string
		err := d.Each(ctx, d.Read, func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			have = append(have, name)
			return err
		}, statement, d.Q(table.name))
		if err != nil {
			return fmt.Errorf("looking at table %s: %w", d.Q(table.name), err)
		}
		if len(have) == 0 {
			faults = append(faults, fmt.Errorf("no table %s", d.Q(table.name)))
			continue
		}
		for _, column := range table.columns {
			if !slices.Contains(have, column) {
				faults = append(faults, fmt.Errorf("table %s: got no column %s, want it as the migrations make it", d.Q(table.name), column))
			}
		}
	}
	return errors.Join(faults...)
}
