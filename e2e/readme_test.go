package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
)

// A transcript is a command of a ```console block and what it prints; a block
// may hold several. A line "..." stands for lines left out; one that begins with
// "> " goes on with the command.
type transcript struct {
	command string
	lines   []string
}

var consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")

// transcripts returns those of a page, in order.
func transcripts(t *testing.T, page string) []transcript {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	var out []transcript
	for _, block := range consoleBlock.FindAllStringSubmatch(string(text), -1) {
		begun := false
		for line := range strings.SplitSeq(strings.TrimSuffix(block[1], "\n"), "\n") {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				out = append(out, transcript{command: command})
				begun = true
				continue
			}
			if !begun {
				t.Fatalf("%s: a console block does not begin with a command:\n%s", page, block[1])
			}
			last := &out[len(out)-1]
			if more, ok := strings.CutPrefix(line, "> "); ok && len(last.lines) == 0 {
				last.command += "\n" + more
				continue
			}
			last.lines = append(last.lines, line)
		}
	}
	return out
}

// What differs between two runs: times, other numbers, ids.
var (
	spans   = regexp.MustCompile(`\b\d+(\.\d+)?(e-?\d+)? ?(ns|µs|ms|s|min)\b`)
	numbers = regexp.MustCompile(`\b\d+(\.\d+)?\b`)
	blanks  = regexp.MustCompile(`\s+`)
)

func normal(line string) string {
	line = spans.ReplaceAllString(line, "<time>")
	line = numbers.ReplaceAllString(line, "<n>")
	return strings.TrimSpace(blanks.ReplaceAllString(line, " "))
}

// shows reports the first line of the transcript that the output lacks.
func (tr transcript) shows(output string) (missing string, ok bool) {
	var got []string
	if output = strings.TrimRight(output, "\n"); output != "" {
		got = strings.Split(output, "\n")
	}
	at, skip := 0, false
	for _, want := range tr.lines {
		if want == "..." {
			skip = true
			continue
		}
		for skip && at < len(got) && normal(got[at]) != normal(want) {
			at++
		}
		if at >= len(got) || normal(got[at]) != normal(want) {
			return want, false
		}
		at, skip = at+1, false
	}
	return "nothing more", skip || at == len(got)
}

// replay runs the command and compares what it prints. A command that fails is
// a fault, but for one whose transcript ends with the status that a shell shows
// when asked: "(exit status 3)".
func (tr transcript) replay(t *testing.T, dir string) {
	t.Helper()
	want := 0
	if n := len(tr.lines); n > 0 {
		if _, err := fmt.Sscanf(tr.lines[n-1], "(exit status %d)", &want); err == nil && want != 0 && !strings.Contains(tr.command, "demo.sh") {
			tr.lines = tr.lines[:n-1]
		} else {
			want = 0
		}
	}
	status, out := tr.run(dir)
	for again := 0; again < 5 && status != want && bytes.Contains(out, []byte("ambiguous: ")); again++ {
		t.Logf("%s: this machine is too busy to measure; once more", tr.command)
		status, out = tr.run(dir)
	}
	if status != want {
		t.Errorf("%s: exit status %d, want %d", tr.command, status, want)
	}
	if missing, ok := tr.shows(string(out)); !ok {
		t.Errorf("%s does not print %q where the page has it:\n%s", tr.command, missing, out)
	}
}

// run runs the command once.
func (tr transcript) run(dir string) (status int, out []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", tr.command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "BIN="+bin, "KBLOCAL_AGENT="+agent, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return -1, []byte(err.Error())
	}
	return cmd.ProcessState.ExitCode(), out
}

// TestReadme checks that the tools print what the README shows. TestSlowDemo checks
// the demo, which judges timed submissions.
func TestReadme(t *testing.T) {
	t.Parallel()
	all := transcripts(t, "README.md")
	for _, tr := range all {
		t.Run(tr.command, func(t *testing.T) {
			switch tr.command {
			case "make demo":
			case "make test":
				checkTestLines(t, tr)
			default:
				tr.replay(t, root)
			}
		})
	}
	if len(all) < 6 {
		t.Errorf("%d transcripts found, want at least 6", len(all))
	}
}

func TestSlowDemo(t *testing.T) {
	testenv.NeedSlow(t)
	for _, tr := range transcripts(t, "README.md") {
		if tr.command == "make demo" {
			tr.command = "sh tools/demo.sh"
			tr.replay(t, root)
			return
		}
	}
	t.Error("the README does not show make demo")
}

// checkTestLines checks the lines of `make test` without running it again:
// its packages exist and its command is the Makefile's.
func checkTestLines(t *testing.T, tr transcript) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range tr.lines {
		switch fields := strings.Fields(line); {
		case line == "...":
		case len(fields) == 3 && fields[0] == "ok":
			if out, err := exec.Command("go", "list", fields[1]).CombinedOutput(); err != nil {
				t.Errorf("%q: %s", line, out)
			}
		case !strings.Contains(strings.ReplaceAll(string(makefile), "$(GO)", "go"), "\t"+line+"\n"):
			t.Errorf("the Makefile does not run %q", line)
		}
	}
}
