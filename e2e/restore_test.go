package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/pgtest"
	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
)

// A backup that is made while a run is under way is restored on an empty machine as
// docs/kbserve.md says, and the run's result is collected there.
func TestSlowRestore(t *testing.T) {
	testenv.NeedSlow(t)
	t.Run("SQLite", func(t *testing.T) { restore(t, "SQLite", "kbserve db backup ") })
	t.Run("PostgreSQL", func(t *testing.T) { restore(t, "PostgreSQL", "pg_dump ") })
}

// restore replays the commands of the page's block that begins with a command.
func restore(t *testing.T, kind, command string) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "kbserve.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sh\n(" + command + ".*?)\n# On the new machine[^\n]*\n(.*?)\nsystemctl [^\n]*\n```").FindSubmatch(page)
	if block == nil {
		t.Fatalf("docs/kbserve.md has no block of a restore that begins with %q", command)
	}
	s := evaluators(t, t.TempDir(), 0, local.Options{})
	old := newBackendRig(t, s, kind)
	old.user("1001")
	old.do("board", "create", "sort", filepath.Join(root, "examples", "sort_py"), "--deadline", "2100-01-01", "--gpu", "CPU_BK")
	i := old.serve(freeAddress(t), "--lease", "2s", "--listing-delay", "1s")
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	code := fmt.Sprintf("# want %s %s 1000\ndef custom_kernel(data):\n    return data\n", schema.OutcomePassed, schema.OutcomePassed)
	id, err := old.submit(ctx, i.address, "1001", "sort", "CPU_BK", schema.ModeTest, code)
	if err != nil {
		t.Fatal(err)
	}
	for len(s.Engine.Builds(engine.BuildFilter{})) == 0 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}

	dir := t.TempDir()
	restored := *old
	restored.database = "sqlite:" + filepath.Join(dir, "kbserve.db")
	path := bin + ":" + os.Getenv("PATH")
	if kind == "PostgreSQL" {
		restored.database = databaseURL(t, kind)
		programs, err := pgtest.Programs()
		if err != nil {
			t.Fatal(err)
		}
		path = programs + ":" + path
	}
	run := func(b *backendRig, commands string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, "sh", "-euxc", strings.ReplaceAll(commands, "/var/lib/kbserve/", dir+"/"))
		cmd.Dir, cmd.Env = dir, append(b.env(), "PATH="+path)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	run(old, string(block[1]))
	i.kill() // and the old machine is gone
	run(&restored, string(block[2]))

	restored.serve(freeAddress(t), "--lease", "2s", "--listing-delay", "1s")
	if err := s.StartAgents("cpu", 1); err != nil {
		t.Fatal(err)
	}
	c := &crasher{backendRig: &restored}
	if p := c.done(ctx, restored.store(), id); p == nil || p.Code != code || len(p.Runs) != 1 || !p.Runs[0].Passed {
		t.Errorf("the submission is %+v, want one run that passed", p)
	}
	if builds := s.Engine.Builds(engine.BuildFilter{}); len(builds) != 1 {
		t.Errorf("%d builds were made, want 1", len(builds))
	}
}
