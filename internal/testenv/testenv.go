// Package testenv finds or builds what tests run: the commands of this repository,
// a real buildkite-agent and python3. It also says which tests a run includes.
// Programs do not use it.
package testenv

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gopkg.in/yaml.v3"
)

// Slow reports whether this run includes the slow tests, which `make test-slow`
// runs: the tests that bound a time or a size, the whole attack matrix, and the
// campaigns.
func Slow() bool { return os.Getenv("KBGEN_SLOW_TESTS") == "1" }

// NeedSlow skips a test whose name starts with TestSlow unless Slow.
func NeedSlow(t testing.TB) {
	t.Helper()
	if !Slow() {
		t.Skip("slow test, run: make test-slow")
	}
}

// start is the directory in which the test binary was started: its package's.
var start, _ = os.Getwd()

// Root returns the repository's absolute path: the nearest directory above the
// package's with a Makefile. Compiled-in paths do not serve, because -trimpath
// shortens them.
var Root = sync.OnceValue(func() string {
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "Makefile")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic("no Makefile above " + start)
		}
	}
})

// Agent returns the path of the buildkite-agent that tools/agent.sh built, or of
// one in path, the value of PATH. It passes over a program of that name that does
// not report an agent's version. It skips the test if there is none.
func Agent(t testing.TB, path string) string {
	t.Helper()
	for _, dir := range append([]string{filepath.Join(Root(), "bin")}, filepath.SplitList(path)...) {
		agent := filepath.Join(dir, "buildkite-agent")
		if out, err := exec.Command(agent, "--version").Output(); err == nil && strings.HasPrefix(string(out), "buildkite-agent version ") {
			return agent
		}
	}
	t.Skip("NOT RUN: no buildkite-agent in bin or on PATH, run: make agent")
	return ""
}

// Commands returns a directory with this repository's commands, built from the
// present sources. All packages share it.
func Commands(t testing.TB) string {
	t.Helper()
	dir, err := BuildCommands()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// BuildCommands is Commands for a TestMain. Test binaries that run at the same
// time take turns, and a command that is up to date is not linked again.
var BuildCommands = sync.OnceValues(func() (string, error) {
	root := Root()
	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(bin, ".commands.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	build := exec.Command("make", "-s", "commands")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make commands: %w\n%s", err, out)
	}
	return bin, nil
})

// interpreter asks python3 for its own path and PATH. The script of a version
// manager in its place would triple the time of every run.
var interpreter = sync.OnceValue(func() (found struct{ program, path string }) {
	out, err := exec.Command("python3", "-I", "-c", "import os, sys; print(sys.executable, os.environ['PATH'], sep='\\n')").Output()
	if err == nil {
		found.program, found.path, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	}
	return found
})

// Python returns the path of the real interpreter. It skips the test if there is
// none.
func Python(t testing.TB) string {
	t.Helper()
	if interpreter().program == "" {
		t.Skip("NOT RUN: python3 is missing")
	}
	return interpreter().program
}

// PythonPath returns a PATH whose first directory holds the real interpreter. It
// skips the test if there is none.
func PythonPath(t testing.TB) string {
	t.Helper()
	return filepath.Dir(Python(t)) + ":" + interpreter().path
}

// A Fix is an entry of node/doctor/testdata/fixes.yml, which describes the fields.
type Fix struct {
	Code, Fix, Name, Breaks, Doctor, After, Words, Untried, Mend string
}

// Matches reports whether a check's fix is the entry's, in which * stands for any text.
func (f *Fix) Matches(code, fix string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(f.Fix), `\*`, ".*")
	return f.Code == code && regexp.MustCompile("^"+pattern+"$").MatchString(fix)
}

// Fixes reads the entries of a file.
func Fixes(t testing.TB, file string) (all []*Fix) {
	t.Helper()
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(doc))
	dec.KnownFields(true)
	if err := dec.Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// HostileValues returns values for a job that create file if a shell or the docker
// plugin evaluates them instead of treating them as text.
func HostileValues(file string) []string {
	return []string{
		"BUILDKITE_PLUGIN_DOCKER_ENVIRONMENT_0[$(touch " + file + "; echo 0)]", "$(touch " + file + ")", "`touch " + file + "`", "() { :;}; touch " + file,
		"'; touch " + file + "; '", "\"; touch " + file + "; \"", "${IFS}$((1+1))%s%n", "-v --privileged", "\u202e\u2028x",
	}
}
