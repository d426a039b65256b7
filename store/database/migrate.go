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
	p, err := d.provider()
	if err != nil {
		return err
	}
	version, wanted := int64(0), int64(0)
	for _, source := range p.ListSources() {
		wanted = max(wanted, source.Version)
	}
	table := d.names.Replace("own.goose_version")
	known, err := d.exists(ctx, table)
	if err == nil && known {
		err = d.Row(ctx, d.Read, `SELECT coalesce(max(version_id), 0) FROM own.goose_version WHERE is_applied`).Scan(&version)
	}
	if err != nil {
		return fmt.Errorf("reading the database's version: %w", err)
	}
	if version != wanted {
		return &VersionError{version, wanted}
	}
	return d.columns(ctx)
}

// A VersionError is a database that this program cannot use as it is.
type VersionError struct{ Got, Want int64 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("the database has version %d, want %d", e.Got, e.Want)
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
	var faults []error
	for _, table := range tables {
		rows, err := d.Read.QueryContext(ctx, d.Q("SELECT * FROM "+table.name+" LIMIT 0"))
		if err != nil {
			return fmt.Errorf("looking at table %s: %w", d.Q(table.name), err)
		}
		have, err := rows.Columns()
		rows.Close()
		if err != nil {
			return fmt.Errorf("looking at table %s: %w", d.Q(table.name), err)
		}
		for _, column := range table.columns {
			if !slices.Contains(have, column) {
				faults = append(faults, fmt.Errorf("table %s: got no column %s, want it as Kernelbot's migrations make it", d.Q(table.name), column))
			}
		}
	}
	return errors.Join(faults...)
}
