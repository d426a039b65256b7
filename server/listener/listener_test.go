package listener

import (
	"context"
	"encoding/gob"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/cloudflare/tableflip"
)

// asChild, in the environment, makes a process of this test the one that takes over.
const asChild = "KBSERVE_TEST_CHILD"

// The library's words for "too early" are the ones we know: it says both of them, in
// turn, to a process that has not said that it is ready, and whose parent runs.
func TestTooEarly(t *testing.T) {
	if os.Getenv(asChild) != "" {
		tooEarlyInChild(t)
		return
	}
	ready, readyW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	names, namesW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	// What a parent does: no file is handed over, and the pipe is open while it runs.
	defer namesW.Close()
	if err := gob.NewEncoder(namesW).Encode([][]string{}); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestTooEarly$", "-test.v")
	child.Env = append(os.Environ(), asChild+"=yes", "TABLEFLIP_HAS_PARENT_7DIU3=yes")
	child.ExtraFiles = []*os.File{readyW, names}
	out, err := child.CombinedOutput()
	readyW.Close()
	names.Close()
	if err != nil {
		t.Errorf("the child: %v\n%s", err, out)
	}
}

func tooEarlyInChild(t *testing.T) {
	u, err := tableflip.New(tableflip.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !u.HasParent() {
		t.Fatal("the library sees no parent")
	}
	before := u.Upgrade()
	if before == nil || !tooEarly(before) {
		t.Fatalf("an upgrade before ready: %v, want one that is too early", before)
	}
	if err := u.Ready(); err != nil {
		t.Fatal(err)
	}
	// The loop sees that it is ready a moment later.
	err = u.Upgrade()
	for err != nil && err.Error() == before.Error() {
		time.Sleep(time.Millisecond)
		err = u.Upgrade()
	}
	if err == nil || !tooEarly(err) {
		t.Errorf("an upgrade while the parent runs: %v, want one that is too early", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := handOver(ctx, u); err == nil {
		t.Error("a hand-over that is given up while the parent runs: no error")
	}
}

// Once a server that is told to stop has closed its listener, a connection is refused,
// so that a proxy sends the request to another instance.
func TestNoConnectionAfterStop(t *testing.T) {
	sockets, err := Listen([]string{"127.0.0.1:0"}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer sockets.Close()
	log := slog.New(slog.DiscardHandler)
	if err := sockets.Ready("", log); err != nil {
		t.Fatal(err)
	}
	parent, cancel := context.WithCancel(t.Context())
	ctx, stop := sockets.Context(parent, make(chan os.Signal), log)
	defer stop()
	cancel()
	<-ctx.Done()
	address := sockets.Pages[0].Addr().String()
	sockets.Pages[0].Close()
	if c, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection after the listener was closed: %v, %v; want it refused", c, err)
	}
}
