package gate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/node"
)

// What is executed next finds the token at the descriptor that its arguments name.
func TestTokenOutlivesAnExec(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("not-a-real-one"), 0o400); err != nil {
		t.Fatal(err)
	}
	fd, err := openToken(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
		t.Errorf("flags of the descriptor: %d, %v; an exec closes it", flags, err)
	}
	slot := &node.Slot{Name: "gpu0"}
	config := &node.Config{Agent: node.Agent{Path: "/usr/bin/buildkite-agent"}}
	argv := agentArgs(config, slot, fd)
	if want := []string{"/usr/bin/buildkite-agent", "start", "--config", "/etc/kbnode/gpu0/agent.cfg", "--token", fmt.Sprintf("fd://%d", fd)}; !slices.Equal(argv, want) {
		t.Errorf("arguments: %q, want %q", argv, want)
	}
	out, err := exec.Command("cat", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)).Output()
	if err != nil || string(out) != "not-a-real-one" {
		t.Errorf("read %q, %v", out, err)
	}
}

func TestRunAgentWithoutACredential(t *testing.T) {
	if _, err := openToken(""); err == nil || !strings.Contains(err.Error(), "LoadCredential=") {
		t.Errorf("without a directory: %v", err)
	}
	dir := t.TempDir()
	if _, err := openToken(dir); err == nil {
		t.Error("without a token: no error")
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "token")); err != nil {
		t.Fatal(err)
	}
	if _, err := openToken(dir); err == nil {
		t.Error("a link: no error")
	}
}
