package database

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Backup writes one state of a SQLite store into a new file, while others go on
// writing. The file has its name once all of it is there, and is its owner's alone.
//
// Errors: a PostgreSQL store, whose own tools do that; a file that exists.
func (d *DB) Backup(ctx context.Context, file string) error {
	if d.Kind != SQLite {
		return errors.New("backing up: the database is PostgreSQL: use pg_dump")
	}
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("backing up: %s exists", file)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("backing up: %w", err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".kbserve-backup-") // for its owner alone
	if err != nil {
		return fmt.Errorf("backing up: %w", err)
	}
	defer os.RemoveAll(dir)
	part := filepath.Join(dir, "part")
	// VACUUM is no write to this database, and not allowed where nothing may be written.
	if _, err := d.Exec(ctx, d.Write, `VACUUM INTO $1`, part); err != nil {
		return fmt.Errorf("backing up: %w", err)
	}
	if err := os.Chmod(part, 0o600); err != nil {
		return fmt.Errorf("backing up: %w", err)
	}
	if err := flush(part); err != nil {
		return fmt.Errorf("backing up: %w", err)
	}
	// Link, not rename: whoever made the file meanwhile keeps it.
	if err := os.Link(part, file); err != nil {
		return fmt.Errorf("backing up: %w", err)
	}
	return flush(filepath.Dir(file))
}

// flush waits until a file, or a folder's names, are on the disk.
func flush(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
