// Package clitest is what the scripts of all commands share in their tests.
package clitest

import (
	"errors"
	"os/exec"
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
