// Package store keeps boards, users, submissions, their runs and who ranks where,
// in SQLite (a file, one process) or in PostgreSQL (several processes).
//
// Kernelbot's tables (schema leaderboard) hold what Kernelbot keeps, in its own
// form, so that its programs read them; they are never altered. What it has no
// column for stands beside them in tables of ours (schema kbserve). In SQLite
// there are no schemas: Kernelbot's tables have their own names, ours begin with
// kbserve_.
//
// Who ranks is decided by [Judge] and by nothing else; verdicts and standings are
// written in the transaction that changes a run, and [Store.Rebuild] makes them
// from the runs alone.
//
// The package knows nothing of HTTP, builds or queues. No error quotes code,
// seeds, CLI ids or the password of a database.
package store
