package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A program that somebody still holds open for writing starts once it is closed.
func TestABusyProgramIsWaitedFor(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	text, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, text, 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(program, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	tries := 0
	err = whileBusy(func() error {
		err := exec.Command(program).Run()
		if tries++; tries == 1 {
			if !errors.Is(err, syscall.ETXTBSY) {
				t.Errorf("a program that is open for writing: %v, want that it is busy", err)
			}
			held.Close()
			return syscall.ETXTBSY
		}
		return err
	})
	if err != nil || tries != 2 {
		t.Errorf("%v after %d tries, want it started by the second", err, tries)
	}
	if err := whileBusy(func() error { return syscall.ENOENT }); err != syscall.ENOENT {
		t.Errorf("another error becomes %v", err)
	}
}
