// Package migrations holds the database schema as goose's SQL files, one folder
// for each kind of database. The first file makes Kernelbot's tables where they
// are missing and never changes those that exist; the second makes ours.
package migrations

import "embed"

// FS holds sqlite/*.sql and postgres/*.sql.
//
//go:embed sqlite/*.sql postgres/*.sql
var FS embed.FS
