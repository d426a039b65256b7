package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The commands that docs/kbserve.md shows and that need nothing but a database work, in
// the order of the page. What needs a server, systemd or docker is left out.
func TestCommandsInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/kbserve.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	var script, files strings.Builder
	script.WriteString("symlink examples -> $EXAMPLES\ncp $EXAMPLES/vectoradd_py/task.yml problems/add/task.yml\ncp $EXAMPLES/vectoradd_py/task.py problems/add/task.py\n" +
		"cp $EXAMPLES/vectoradd_py/reference.py problems/add/reference.py\ncp $EXAMPLES/vectoradd_py/template.py problems/add/template.py\n")
	// Before a block with the first word, the script runs the second.
	before := map[string]string{
		"kbserve board rejudge":   "evaluate sqlite:kbserve.db vectoradd H100_BK 7 1000\n",
		"kbserve invite create":   "exec kbserve board create finals examples/vectoradd_py --deadline 2100-01-01 --gpu H100_BK\n",
		"kbserve submission list": "",
	}
	for i := range 17 {
		before["kbserve submission list"] += fmt.Sprintf("evaluate sqlite:kbserve.db finals H100_BK %d 1000\n", 100+i)
	}
	used, blocks := 0, 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		text := strings.ReplaceAll(block[1], "/var/lib/kbserve/", "")
		if !strings.HasPrefix(text, "kbserve ") && !strings.HasPrefix(text, "export KBSERVE_DATABASE=") || strings.Contains(text, "kbserve unit") || strings.Contains(text, "kbserve selftest") || strings.Contains(text, "systemctl ") {
			continue
		}
		for word, first := range before {
			if strings.HasPrefix(text, word) {
				script.WriteString(first)
				used++
			}
		}
		blocks++
		fmt.Fprintf(&script, "exec sh -eu block%d.sh\n", blocks)
		fmt.Fprintf(&files, "-- block%d.sh --\n%s", blocks, text)
	}
	if blocks < 6 || used != len(before) {
		t.Fatalf("found %d blocks, and %d of %d that need something before them", blocks, used, len(before))
	}
	files.WriteString("-- problems/add/README --\n-- problems/set.yaml --\nname: a set\ndeadline: 2100-01-01\nproblems:\n  - {directory: add, name: add, gpus: [H100_BK]}\n")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docs.txtar"), []byte(script.String()+"\n"+files.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: dir, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("EXAMPLES", examples)
			env.Setenv("KBSERVE_DATABASE", "sqlite:kbserve.db")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"evaluate": evaluate},
	})
}
