package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/database"
)

// When the disk is full, clients get 503 and when to try again, /ready says so, and
// reading goes on.
func TestFullDisk(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	url := "sqlite:" + filepath.Join(dir, "kb.db")
	if _, _, err := database.Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	servertest.Save(t, s, servertest.Board("sort"))
	cli, err := s.NewCLIID(ctx, "7", "ann")
	if err != nil {
		t.Fatal(err)
	}
	client, err := launcher.New(launcher.Options{BaseURL: "http://127.0.0.1:1", Token: "bkua_secret", Org: "gpu-mode", Pipeline: "kernelbot"})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := New(ctx, Options{Store: s, Launcher: client, PublicURL: "https://kb.test"})
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, path, accept string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader("--X\r\nContent-Disposition: form-data; name=\"gpu\"\r\n\r\nH100\r\n--X\r\nContent-Disposition: form-data; name=\"mode\"\r\n\r\ntest\r\n--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.py\"\r\n\r\n"+strings.Repeat("x = 1\n", 100_000)+"\r\n--X--\r\n"))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=X")
		r.Header.Set("X-Popcorn-Cli-Id", cli)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		srv.Handler().ServeHTTP(w, r)
		return w
	}
	if got := send("GET", "/ready", ""); got.Code != 200 || got.Header().Get("Strict-Transport-Security") == "" {
		t.Errorf("/ready before: %d %s %v", got.Code, got.Body, got.Header())
	}
	if err := fill(filepath.Join(dir, "junk")); err != nil {
		t.Fatal(err)
	}
	for range 20 { // what SQLite has of room in its log is used up first
		if got := send("POST", "/submission/sort/H100/test", ""); got.Code != http.StatusAccepted {
			break
		}
	}
	got := send("POST", "/submission/sort/H100/test", "")
	if got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" || !strings.Contains(got.Body.String(), "nothing was stored") {
		t.Errorf("a submission: %d %v %s", got.Code, got.Header(), got.Body)
	}
	got = send("POST", "/b/sort", "text/html")
	if got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" || !strings.Contains(got.Body.String(), "Nothing was stored") {
		t.Errorf("a submission by a page: %d %v %.300s", got.Code, got.Header(), got.Body)
	}
	srv.health.checked = srv.health.checked.Add(-writeEvery)
	if got := send("GET", "/ready", ""); got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), "not written") {
		t.Errorf("/ready: %d %s, want 503", got.Code, got.Body)
	}
	if got := send("GET", "/leaderboards", ""); got.Code != 200 {
		t.Errorf("reading: %d, want 200", got.Code)
	}
	if err := os.Remove(filepath.Join(dir, "junk")); err != nil {
		t.Fatal(err)
	}
	srv.health.checked = srv.health.checked.Add(-writeEvery)
	if got := send("GET", "/ready", ""); got.Code != 200 {
		t.Errorf("/ready when there is room again: %d %s", got.Code, got.Body)
	}
}

// fill writes into a file until the disk is full.
func fill(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}
