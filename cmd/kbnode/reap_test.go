package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
)

// An agent's stop would wait for its last minute.
func TestReapWaitsForNoEngineThatHangs(t *testing.T) {
	root := t.TempDir()
	config := filepath.Join(root, node.ConfigPath)
	slots := "version: 1\nslots: [{name: gpu0, platform: docker}]\n"
	if err := errors.Join(os.MkdirAll(filepath.Dir(config), 0o755), os.WriteFile(config, []byte(slots), 0o644)); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "kbr-") // short: a socket lies in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s")) // nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := reapCmd{slotFlags{Slot: "gpu0", Engine: filepath.Join(dir, "s"), Root: root}, time.Millisecond}
	if err := c.Run(t.Context(), &cli.Env{Stderr: io.Discard}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}
