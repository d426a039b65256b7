package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
)

// The worked examples: one page for each role, replayed from its first line to
// its last in a repository of its own, which begins with the examples and
// goldens in it.
func TestRolePages(t *testing.T) {
	replayPages(t, map[string]int{"docs/maintainers.md": 8, "docs/vendors.md": 3, "docs/pipeline-authors.md": 8})
}

// TestSlowRolePages replays the pages whose submissions are timed.
func TestSlowRolePages(t *testing.T) {
	testenv.NeedSlow(t)
	replayPages(t, map[string]int{"docs/backend.md": 5, "docs/competitors.md": 6})
}

// replayPages replays pages, each of which has at least so many commands.
func replayPages(t *testing.T, pages map[string]int) {
	for page, least := range pages {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, part := range []string{"examples", "testdata"} {
				if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(root, part))); err != nil {
					t.Fatal(err)
				}
			}
			git := exec.Command("sh", "-c", "git init -q . && git add -A && git -c user.name=a -c user.email=a@example.com commit -qm begin")
			git.Dir = dir
			if out, err := git.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			all := transcripts(t, page)
			for _, tr := range all {
				tr.replay(t, dir)
			}
			if len(all) < least {
				t.Errorf("%d commands with their output, want at least %d", len(all), least)
			}
		})
	}
}
