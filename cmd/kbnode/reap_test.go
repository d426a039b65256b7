package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
)

// A host slot's agent stops after each job. Its unit then runs kbnode reap, which
// copies the job's record from the journal. kbnode reap records nothing if it is
// started by hand or for a slot with containers.
func TestReapRecordsTheJob(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
			t.Fatal(err)
		}
	}
	write(node.ConfigPath, "version: 1\nslots: [{name: cpu0, platform: host}, {name: gpu0, platform: docker}]\n", 0o644)
	write(node.AuditDir+"/other", "", 0o600)
	write("journalctl", `#!/bin/sh
case "$*" in *" _SYSTEMD_INVOCATION_ID=abc "*) echo '{"KBNODE_JOB":"j1","KBNODE_STATUS":"3"}' ;; esac
`, 0o755)
	reap := func(slot, invocation string) {
		t.Helper()
		lookup := func(name string) (string, bool) { return invocation, name == "INVOCATION_ID" }
		c := reapCmd{slotFlags: slotFlags{Slot: slot, Root: root}, Timeout: time.Minute, Journalctl: filepath.Join(root, "journalctl")}
		if err := c.Run(t.Context(), &cli.Env{LookupEnv: lookup, Stderr: io.Discard}); err != nil {
			t.Errorf("reap of %s: %v", slot, err)
		}
	}
	reap("gpu0", "abc")
	reap("cpu0", "")
	if files, err := os.ReadDir(filepath.Join(root, node.AuditDir)); err != nil || len(files) != 1 {
		t.Errorf("%d files, %v, want no record", len(files), err)
	}
	reap("cpu0", "abc")
	if raw, err := os.ReadFile(filepath.Join(root, node.AuditDir, "cpu0.log")); err != nil || !strings.Contains(string(raw), `"job":"j1"`) || !strings.Contains(string(raw), `"status":3`) {
		t.Errorf("recorded %s, %v, want j1 with status 3", raw, err)
	}
}

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
	c := reapCmd{slotFlags: slotFlags{Slot: "gpu0", Engine: filepath.Join(dir, "s"), Root: root}, Timeout: time.Millisecond}
	if err := c.Run(t.Context(), &cli.Env{Stderr: io.Discard}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}
