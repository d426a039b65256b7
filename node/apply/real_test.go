package apply

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpu-mode/kbgen/node/resource"
)

// A clone by git itself is at the commit, whole, and readable by all, whatever the
// umask; a tag that was moved is refused.
func TestRealClone(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("NOT RUN: there is no git here")
	}
	source := filepath.Join(t.TempDir(), "plugin")
	git := func(args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", source, "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"}, args...)...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.MkdirAll(filepath.Join(source, "hooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "hooks/command"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	git("init", "--quiet")
	git("add", ".")
	git("commit", "--quiet", "--message", "one")
	git("tag", "v1")
	commit := git("rev-parse", "HEAD")

	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	f := newFixture(t)
	f.machine.Git, f.machine.NoSync = Git, false
	name := "/var/lib/kbnode/plugins/docker"
	s := resource.Set{Clones: []resource.Clone{{Path: name, From: source, Ref: "v1", Commit: commit}}}
	f.mustApply(t, &s)
	clone := filepath.Join(f.machine.Root, name)
	for file, want := range map[string]os.FileMode{"hooks/command": 0o755, "hooks": 0o755, ".git": 0o755, ".git/HEAD": 0o644} {
		if info, err := os.Stat(filepath.Join(clone, file)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %v", file, info.Mode(), err, want)
		}
	}
	if out, err := exec.Command("git", "-C", clone, "-c", "safe.directory=*", "status", "--porcelain").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("git status in the clone: %v\n%s", err, out)
	}
	if did := f.mustApply(t, &s); len(did) > 0 {
		t.Errorf("a second time: %+v", did)
	}
	git("commit", "--quiet", "--allow-empty", "--message", "two")
	git("tag", "--force", "v1")
	f.mustUndo(t)
	if _, err := f.apply(&s); err == nil || !strings.Contains(err.Error(), "want "+commit) {
		t.Errorf("with a tag that was moved: %v", err)
	}
	f.mustUndo(t)
	if exists(clone) {
		t.Error("the clone is there after Undo")
	}
}

// Users by the system's own commands, in files below a directory.
func TestRealUsers(t *testing.T) {
	for _, name := range []string{"useradd", "userdel"} {
		if _, err := exec.LookPath(name); err != nil || os.Geteuid() != 0 {
			t.Skip("NOT RUN: it takes root and " + name)
		}
	}
	f := newFixture(t)
	f.machine.Users = &Useradd{Root: f.machine.Root}
	s := resource.Set{Users: []resource.User{{Name: "kbagent-gpu0", Home: "/var/lib/kbnode/slots/gpu0"}}}
	f.mustApply(t, &s)
	a, err := f.machine.accounts()
	if err != nil {
		t.Fatal(err)
	}
	passwd, err := os.ReadFile(f.machine.path("/etc/passwd"))
	if err != nil {
		t.Fatal(err)
	}
	user := fmt.Sprintf(":%d:%d::/var/lib/kbnode/slots/gpu0:", a.users["kbagent-gpu0"], a.groups["kbagent-gpu0"])
	if a.users["kbagent-gpu0"] == 0 || !strings.Contains(string(passwd), user) {
		t.Errorf("want %s in %s", user, passwd)
	}
	if did := f.mustApply(t, &s); len(did) > 0 {
		t.Errorf("a second time: %+v", did)
	}
	// A useradd that was killed may have left the group alone.
	if err := exec.Command("userdel", "--prefix", f.machine.Root, "--", "kbagent-gpu0").Run(); err != nil {
		t.Fatal(err)
	}
	f.mustApply(t, &s)
	f.mustUndo(t)
	for _, file := range []string{"passwd", "group"} {
		if content, err := os.ReadFile(filepath.Join(f.machine.Root, "etc", file)); err != nil || strings.Contains(string(content), "kbagent") {
			t.Errorf("/etc/%s: %v\n%s", file, err, content)
		}
	}
}
