// Package clitest is what the scripts of all commands share in their tests.
package clitest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// Exits is the script command exits: it runs a command and compares its exit
// status.
//
//	exits 2 kbgen gpus x
func Exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND [ARGUMENT]...")
	}
	status := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exited *exec.ExitError
		if !errors.As(err, &exited) {
			ts.Fatalf("%s: %v", args[1], err)
		}
		status = exited.ExitCode()
	}
	if strconv.Itoa(status) != args[0] {
		ts.Fatalf("%q: exit status %d, want %s", args[1:], status, args[0])
	}
}

// Scripts returns the scripts of a directory, slow: those with lines that have the
// condition slow.
func Scripts(dir string, slow bool) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || !slow {
		return files, err
	}
	var some []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(text, []byte("\n[slow] ")) {
			some = append(some, file)
		}
	}
	return some, nil
}
