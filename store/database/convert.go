package database

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// booleans are the columns that SQLite keeps as 0 and 1.
var booleans = []string{"cli_valid", "is_banned", "done", "secret", "passed", "late", "clear_timing", "ties", "self_checked", "ambiguous", "reuse", "proved"}

// Convert copies everything from a SQLite store into an empty PostgreSQL one, with
// its ids, in one transaction. It returns the number of rows by table.
func Convert(ctx context.Context, from, to *DB) (rows map[string]int64, err error) {
	if from.Kind != SQLite || to.Kind != Postgres {
		return nil, fmt.Errorf("converting: got %s to %s, want SQLite to PostgreSQL", from.Kind, to.Kind)
	}
	rows = map[string]int64{}
	err = from.Snapshot(ctx, func(source *sql.Tx) error {
		return to.Change(ctx, func(target *sql.Tx) error {
			clear(rows)
			var used bool
			if err := to.Row(ctx, target, `SELECT EXISTS (SELECT 1 FROM lb.leaderboard) OR EXISTS (SELECT 1 FROM lb.user_info) OR EXISTS (SELECT 1 FROM lb.code_files)`).Scan(&used); err != nil {
				return err
			}
			if used {
				return fmt.Errorf("the PostgreSQL database holds boards or users, want an empty one")
			}
			if _, err := to.Exec(ctx, target, `DELETE FROM own.installation`); err != nil {
				return err
			}
			for _, table := range tables {
				columns := table.columns
				if table.name == "lb.code_files" {
					columns = []string{"id", "code"} // the hash is generated
				}
				n, err := copyTable(ctx, from, to, source, target, table.name, columns)
				if err != nil {
					return fmt.Errorf("table %s: %w", to.Q(table.name), err)
				}
				rows[to.Q(table.name)] = n
				if table.serial {
					if _, err := to.Exec(ctx, target, fmt.Sprintf(`SELECT setval(pg_get_serial_sequence('%s', 'id'), (SELECT coalesce(max(id), 0) + 1 FROM %[1]s), false)`, to.Q(table.name))); err != nil {
						return fmt.Errorf("table %s: %w", to.Q(table.name), err)
					}
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("converting: %w", err)
	}
	return rows, nil
}

// copyBytes is about how much is sent in one statement.
const copyBytes = 4 << 20

func copyTable(ctx context.Context, from, to *DB, source, target *sql.Tx, table string, columns []string) (count int64, err error) {
	var values []string
	var args []any
	size := 0
	flush := func() error {
		if len(values) == 0 {
			return nil
		}
		n, err := to.Exec(ctx, target, "INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") VALUES "+strings.Join(values, ", "), args...)
		count += n
		values, args, size = nil, nil, 0
		return err
	}
	err = from.Each(ctx, source, func(rows *sql.Rows) error {
		row, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		placeholders := make([]string, len(columns))
		for i, v := range row {
			switch v := v.(type) {
			case int64:
				if slices.Contains(booleans, columns[i]) {
					row[i] = v != 0
				}
			case float64:
				row[i] = strconv.FormatFloat(v, 'g', -1, 64)
			case string:
				size += len(v)
			case []byte:
				size += len(v)
			}
			placeholders[i] = "$" + strconv.Itoa(len(args)+i+1)
		}
		values, args = append(values, "("+strings.Join(placeholders, ", ")+")"), append(args, row...)
		if len(values) == 500 || size > copyBytes {
			return flush()
		}
		return nil
	}, "SELECT "+strings.Join(columns, ", ")+" FROM "+table+" ORDER BY 1")
	if err == nil {
		err = flush()
	}
	return count, err
}
