package examples

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// Exit statuses of a tester.
// Source: gpu-mode/kernelbot, src/libkernelbot/consts.py.
const (
	exitOK, exitUsage, exitPipe, exitWrong, exitCases = 0, 2, 111, 112, 113
)

// The keys that a tester may write; free text must not make others.
var reportKey = regexp.MustCompile(
	`^(check|(test|benchmark)-count|(test|benchmark)\.\d+\.(spec|status|error)|benchmark\.\d+\.(runs|mean|std|err|best|worst))$`)

type task struct {
	Files             []struct{ Name, Source string }
	Tests, Benchmarks []yaml.Node
	Templates         map[string]string
}

func readTask(t *testing.T, e Example) task {
	t.Helper()
	text, err := fs.ReadFile(FS(), path.Join(e.Dir, "task.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var parsed task
	if err := yaml.Unmarshal(text, &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

// lines formats cases as Kernelbot does, for values that YAML and Python
// write alike.
func lines(cases []yaml.Node) string {
	var all strings.Builder
	for _, c := range cases {
		var pairs []string
		for i := 0; i+1 < len(c.Content); i += 2 {
			pairs = append(pairs, c.Content[i].Value+": "+c.Content[i+1].Value)
		}
		all.WriteString(strings.Join(pairs, "; ") + "\n")
	}
	return all.String()
}

// lay writes the task's files into a new folder, with submission as its text,
// and returns the folder.
func lay(t *testing.T, e Example, submission string) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range readTask(t, e).Files {
		text := []byte(submission)
		if file.Source != "@SUBMISSION@" {
			var err error
			if text, err = fs.ReadFile(FS(), path.Join(e.Dir, file.Source)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, file.Name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func submission(t *testing.T, e Example, name string) string {
	t.Helper()
	file, err := e.Submission(name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(FS(), file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

type verdict struct {
	exit           int
	report         map[string]string
	stdout, stderr string
	took           time.Duration
}

func (v verdict) passed() bool { return v.report["check"] == "pass" }

func (v verdict) number(t *testing.T, key string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(v.report[key], 64)
	if err != nil {
		t.Errorf("%s: %v", key, err)
	}
	return n
}

// startLimit is when a harness is taken to hang.
const startLimit = 8 * time.Minute

// judge runs a C++ task's harness as Kernelbot does: argv, a pipe as POPCORN_FD, the
// cases in a file outside the folder.
func judge(t *testing.T, dir, mode, cases string, env ...string) verdict {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cases.txt")
	if err := os.WriteFile(file, []byte(cases), 0o644); err != nil {
		t.Fatal(err)
	}
	return start(t, dir, []string{mode, file}, append(env, "POPCORN_FD=3"))
}

func start(t *testing.T, dir string, args, env []string) verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	report := make(chan []byte, 1)
	go func() { // ends with the last writer, or when read is closed
		text, _ := io.ReadAll(read)
		report <- text
	}()
	var v verdict
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "./eval.out", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = dir, &stdout, &stderr, []*os.File{write}
	cmd.Env = append(os.Environ(), env...)
	begin := time.Now()
	err = cmd.Run()
	v.took = time.Since(begin)
	write.Close()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%v: no end within %s", cmd.Args, startLimit)
	}
	v.exit, v.stdout, v.stderr = cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	v.report = parseReport(t, string(<-report))
	return v
}

func parseReport(t *testing.T, text string) map[string]string {
	t.Helper()
	report := make(map[string]string)
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !reportKey.MatchString(key) {
			t.Errorf("the report has a line %q, want only known keys", line)
		}
		if _, twice := report[key]; twice {
			t.Errorf("the report has %q twice", key)
		}
		report[key] = value
	}
	return report
}

// expect compares one verdict with what kind of submission it is.
func expect(t *testing.T, v verdict, right bool) {
	t.Helper()
	wantExit, wantCheck := exitOK, "pass"
	if !right {
		wantExit, wantCheck = exitWrong, "fail"
	}
	if v.exit != wantExit || v.report["check"] != wantCheck {
		t.Errorf("got exit %d, check %q, want %d, %q\nreport: %v\nstderr: %s",
			v.exit, v.report["check"], wantExit, wantCheck, v.report, v.stderr)
	}
}

// needsQuiet skips a test that proves times: who else computes here changes
// them.
func needsQuiet(t *testing.T) {
	t.Helper()
	if os.Getenv("KBGEN_SLOW_TESTS") != "1" {
		t.Skip("proves time/size: make test-slow")
	}
}

// expectTimed is expect for a right submission that is timed, and reports
// whether it has figures. On a busy machine an honest worker's clock and the
// judge's can differ as a liar's would, and the harness then has to say so.
func expectTimed(t *testing.T, v verdict) bool {
	t.Helper()
	for key, text := range v.report {
		if strings.HasSuffix(key, ".error") && strings.HasPrefix(text, "timing: the worker's clock says ") {
			t.Logf("the machine is too busy to measure: %s: %s", key, text)
			expect(t, v, false)
			return false
		}
	}
	expect(t, v, true)
	return true
}

// expectFigures holds the figures of case n against each other.
func expectFigures(t *testing.T, v verdict, n string) {
	t.Helper()
	get := func(name string) float64 { return v.number(t, "benchmark."+n+"."+name) }
	runs, mean, best, worst := get("runs"), get("mean"), get("best"), get("worst")
	if runs < 3 || best <= 0 || best > mean || mean > worst {
		t.Errorf("benchmark.%s: runs %v, best %v, mean %v, worst %v", n, runs, best, mean, worst)
	}
	std, err := get("std"), get("err")
	if diff := err*err*runs - std*std; diff > 0.01*std*std+1 || -diff > 0.01*std*std+1 {
		t.Errorf("benchmark.%s: err %v, want std/sqrt(runs) = %v/sqrt(%v)", n, err, std, runs)
	}
}
