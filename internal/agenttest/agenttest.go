// Package agenttest finds the real buildkite-agent for tests.
package agenttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Binary returns the agent that tools/agent.sh built, or one on PATH, where a
// test's own program of that name may stand first and is passed over. Without one
// the test is skipped.
func Binary(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	built := filepath.Join(filepath.Dir(file), "..", "..", "bin")
	for _, dir := range append([]string{built}, filepath.SplitList(os.Getenv("PATH"))...) {
		path := filepath.Join(dir, "buildkite-agent")
		if out, err := exec.Command(path, "--version").Output(); err == nil && strings.HasPrefix(string(out), "buildkite-agent version ") {
			return path
		}
	}
	t.Skip("NOT RUN: no buildkite-agent in bin or on PATH, run: make agent")
	return ""
}
