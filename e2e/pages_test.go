package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// The worked examples: one page for each role, replayed from its first line to
// its last in a directory of its own, which begins with the examples in it.
func TestRolePages(t *testing.T) {
	for page, least := range map[string]int{
		"docs/maintainers.md":      8,
		"docs/backend.md":          5,
		"docs/vendors.md":          3,
		"docs/pipeline-authors.md": 8,
		"docs/competitors.md":      6,
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join(root, "examples"))); err != nil {
				t.Fatal(err)
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
