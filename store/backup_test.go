package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

// A copy that is made while others write is one state, whole, and can be served from.
func TestBackupWhileOthersWrite(t *testing.T) {
	ctx := t.Context()
	s := migrated(t, sqliteURL(t))
	save(t, s, testBoard("sort"))
	writing, stop := context.WithCancel(ctx)
	done := make(chan int)
	go func() {
		n := 0
		for ; writing.Err() == nil; n++ {
			if _, err := s.Accept(ctx, submission("sort", "H100", fmt.Sprint(n%9+1))); err != nil {
				t.Error(err)
			}
			if n%3 == 0 {
				evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, float64(1000+n)) })
			}
		}
		done <- n
	}()
	dir := t.TempDir()
	last := 0
	for i := 0; last < 3; i++ { // until a copy has some
		file := filepath.Join(dir, fmt.Sprint(i))
		if err := s.Backup(ctx, file); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the copy's mode is %v, %v", info.Mode(), err)
		}
		copied, err := Open(ctx, "sqlite:"+file)
		if err != nil {
			t.Fatal(err)
		}
		if faults, err := copied.Check(ctx); err != nil || len(faults) > 0 {
			t.Errorf("the copy: %v, %v", faults, err)
		}
		if n := count(t, copied, "lb.submission"); n < last {
			t.Errorf("%d submissions in a copy after one with %d", n, last)
		} else {
			last = n
		}
		if _, err := copied.Accept(ctx, submission("sort", "H100", "77")); err != nil {
			t.Errorf("submitting to the copy: %v", err)
		}
		if err := copied.Close(); err != nil {
			t.Error(err)
		}
	}
	stop()
	if n := <-done; n < last {
		t.Errorf("%d submissions were made, and a copy has %d", n, last)
	}
	if err := s.Backup(ctx, filepath.Join(dir, "0")); err == nil {
		t.Error("a file that exists was written over")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".kbserve*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What pg_dump wrote and pg_restore read can be served from.
func TestBackupOfPostgreSQL(t *testing.T) {
	ctx := t.Context()
	url := postgresURL(t)
	s := migrated(t, url)
	save(t, s, testBoard("sort"))
	for i := range 6 {
		if _, err := s.Accept(ctx, submission("sort", "H100", fmt.Sprint(i+1))); err != nil {
			t.Fatal(err)
		}
	}
	evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, 1000) })
	if _, err := s.Accept(ctx, submission("sort", "H100", "9")); err != nil { // waits
		t.Fatal(err)
	}
	to, err := server.Copy(url)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := Open(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if faults, err := copied.Check(ctx); err != nil || len(faults) > 0 {
		t.Errorf("the copy: %v, %v", faults, err)
	}
	if _, total, err := copied.Page(ctx, "sort", "H100", 0, 0); err != nil || total != 6 {
		t.Errorf("%d rank in the copy, %v; want 6", total, err)
	}
	was, err := s.Installation(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if is, err := copied.Installation(ctx); err != nil || is != was {
		t.Errorf("the copy is installation %s, %v; want %s, by which builds are found", is, err, was)
	}
	evaluate(t, copied, func(PlannedRun) *schema.Result { return result(true, 900) })
	if entries, _, err := copied.Page(ctx, "sort", "H100", 1, 0); err != nil || len(entries) != 1 || entries[0].UserID != "9" {
		t.Errorf("what waited ranks as %+v, %v", entries, err)
	}
}
