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
