// Package agenttest finds the real buildkite-agent for tests.
package agenttest

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Binary returns the agent that tools/agent.sh built, or one in path, the value of
// PATH, where a test's own program of that name may stand first and is passed over.
// Without one the test is skipped.
func Binary(t testing.TB, path string) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	built := filepath.Join(filepath.Dir(file), "..", "..", "bin")
	for _, dir := range append([]string{built}, filepath.SplitList(path)...) {
		agent := filepath.Join(dir, "buildkite-agent")
		if out, err := exec.Command(agent, "--version").Output(); err == nil && strings.HasPrefix(string(out), "buildkite-agent version ") {
			return agent
		}
	}
	t.Skip("NOT RUN: no buildkite-agent in bin or on PATH, run: make agent")
	return ""
}
