package database

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/pgtest"
)

// server is the PostgreSQL of this package's tests.
var server pgtest.Shared

func TestMain(m *testing.M) {
	status := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func migrated(t *testing.T, url string) *DB {
	t.Helper()
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// texts reads the one column of a query.
func texts(ctx context.Context, d *DB, statement string) (all []string, err error) {
	var text string
	err = d.Each(ctx, d.Read, func(rows *sql.Rows) error {
		err := rows.Scan(&text)
		all = append(all, text)
		return err
	}, statement)
	return all, err
}

// What is copied is every column of every table, but what is made anew: so that a
// migration which adds one is not forgotten.
func TestConvertKnowsEveryColumn(t *testing.T) {
	ctx := context.Background()
	d := migrated(t, "sqlite:"+filepath.Join(t.TempDir(), "kb.db"))
	known := map[string]bool{}
	for _, table := range tables {
		for _, column := range table.columns {
			known[d.Q(table.name)+"."+column] = true
		}
	}
	made := []string{"kbserve_verdict", "kbserve_standing", "kbserve_goose_version", "sqlite_sequence"} // by Rebuild, Migrate and SQLite
	columns, err := texts(ctx, d, `SELECT m.name || '.' || c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'`)
	if err != nil || len(columns) < 100 {
		t.Fatalf("%d columns, %v", len(columns), err)
	}
	for _, column := range columns {
		table, _, _ := strings.Cut(column, ".")
		if !known[column] && !slices.Contains(made, table) && column != "code_files.old_code" { // Kernelbot has emptied it
			t.Errorf("column %s is not copied", column)
		}
	}
}

// Columns that SQLite keeps as 0 and 1 are those that PostgreSQL has as boolean.
func TestConvertKnowsBooleans(t *testing.T) {
	ctx := context.Background()
	d := migrated(t, server.URL(t))
	want, err := texts(ctx, d, `SELECT DISTINCT column_name FROM information_schema.columns WHERE data_type = 'boolean' AND table_schema IN ('leaderboard', 'kbserve') AND table_name NOT IN ('goose_version', 'verdict', 'standing')`)
	if err != nil || len(want) < 5 {
		t.Fatalf("boolean columns %v, %v", want, err)
	}
	for _, column := range want {
		if !slices.Contains(booleans, column) {
			t.Errorf("column %s is a boolean and not copied as one", column)
		}
	}
}
