package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A transcript is one ```console block of the README: a command and what it
// prints. A line "..." stands for lines left out.
type transcript struct {
	command string
	lines   []string
}

func readmeTranscripts(t *testing.T) []transcript {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out []transcript
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		lines := strings.Split(strings.TrimSuffix(block[1], "\n"), "\n")
		command, ok := strings.CutPrefix(lines[0], "$ ")
		if !ok {
			t.Fatalf("a console block does not begin with a command:\n%s", block[1])
		}
		out = append(out, transcript{command, lines[1:]})
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
	got := strings.Split(strings.TrimRight(output, "\n"), "\n")
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

// Everything the README prints is what the tools print.
func TestReadme(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, tr := range readmeTranscripts(t) {
		t.Run(tr.command, func(t *testing.T) {
			seen++
			if tr.command == "make test" {
				checkTestLines(t, tr)
				return
			}
			command := strings.Replace(tr.command, "make demo", "sh tools/demo.sh", 1)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "-c", command)
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "BIN="+bin, "KBLOCAL_AGENT="+agent, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v", command, err)
			}
			if missing, ok := tr.shows(string(out)); !ok {
				t.Errorf("%s does not print %q where the README has it:\n%s", command, missing, out)
			}
		})
	}
	if seen < 6 {
		t.Errorf("%d transcripts found, want at least 6", seen)
	}
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
