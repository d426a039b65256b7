package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// makeServe is what make serve runs after it has built: with a popcorn whose submission
// comes to no result, as on a machine that is too busy.
func makeServe(t *testing.T, port int) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	programs, err := filepath.Glob(filepath.Join(bin, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		if filepath.Base(program) == "popcorn" {
			continue
		}
		if err := os.Symlink(program, filepath.Join(dir, filepath.Base(program))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "popcorn"), []byte("#!/bin/sh\necho 'popcorn: error: submission failed' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	t.Cleanup(stop)
	cmd := exec.CommandContext(ctx, "sh", "tools/demo.sh", "serve")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "BIN="+dir, fmt.Sprintf("PORT=%d", port))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// make serve goes on when its first submission has no result, and says where its log is.
func TestMakeServeGoesOnWithoutAResult(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	cmd := makeServe(t, port)
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file // processes in the background hold it open, too
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	printed := func() string {
		out, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	var log string
	for log == "" {
		select {
		case err := <-ended:
			t.Fatalf("make serve ended: %v\n%s", err, printed())
		case <-time.After(50 * time.Millisecond):
		}
		_, rest, _ := strings.Cut(printed(), "\nLog:       ")
		if line, _, whole := strings.Cut(rest, "\n"); whole {
			log = line
		}
	}
	if out := printed(); !strings.Contains(out, "This submission has no result") || !strings.Contains(out, "until Ctrl-C") {
		t.Errorf("got\n%s", out)
	}
	if text, err := os.ReadFile(log); err != nil || !bytes.Contains(text, []byte("msg=serving")) {
		t.Errorf("the log: %q, %v", text, err)
	}
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/b/vectoradd_py", port))
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("the board: %+v, %v", answer, err)
	}
	syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // as Ctrl-C does
	<-ended
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
		c.Close()
		t.Error("a server is left")
	}
}

// make serve names a port that is taken, and asks nothing of the program that has it.
func TestMakeServeNamesATakenPort(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Error("the program at the port was asked something")
			c.Close()
		}
	}()
	out, err := makeServe(t, port).CombinedOutput()
	if want := fmt.Sprintf("port %d of 127.0.0.1 cannot be used: [Errno 98] Address already in use\nPORT names another, 0 any that is free: make serve PORT=0\n", port); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("got %v\n%s\nwant a failure and %q", err, out, want)
	}
}
