package server

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/database"
)

// A server warns when a newer program has migrated the database, and ends with the
// reason when it cannot use the database any more.
func TestServerEndsAfterAnIncompatibleMigration(t *testing.T) {
	ctx := t.Context()
	url := "sqlite:" + filepath.Join(t.TempDir(), "kb.db")
	if _, _, err := database.Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	newer, err := database.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer newer.Close()
	client, err := launcher.New(launcher.Options{BaseURL: "http://127.0.0.1:1", Token: "bkua_secret", Org: "gpu-mode", Pipeline: "kernelbot"})
	if err != nil {
		t.Fatal(err)
	}
	var log testenv.Log
	srv, err := New(ctx, Options{Store: s, Launcher: client, PublicURL: "http://kb.test", Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	srv.recheck = 5 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, []net.Listener{l}, nil, nil) }()
	migrate := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := newer.Exec(ctx, newer.Write, statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	migrate(`ALTER TABLE own.board ADD COLUMN later text NOT NULL DEFAULT ''`, `INSERT INTO own.goose_version (version_id, is_applied) VALUES (1000000, true)`)
	for !strings.Contains(log.String(), "another program has migrated the database") {
		select {
		case err := <-ended:
			t.Fatalf("the server ended after a column was added: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	migrate(`ALTER TABLE own.board RENAME COLUMN ties TO draws`)
	if err := <-ended; !errors.Is(err, database.ErrIncompatible) || !strings.Contains(err.Error(), "got no column ties") {
		t.Errorf("Serve = %v, want ErrIncompatible with the column", err)
	}
}
