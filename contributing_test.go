package kbgen

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
)

// TestRecipes applies the edits of every recipe of CONTRIBUTING.md to a copy of the
// repository, so that a recipe whose place in a file has changed is found.
// TestSlowRecipes also runs the commands, which must do what their comment says. A
// recipe's last command fails if the recipe forgets a golden.
func TestRecipes(t *testing.T) { followRecipes(t, false) }

func TestSlowRecipes(t *testing.T) {
	testenv.NeedSlow(t)
	followRecipes(t, true)
}

func followRecipes(t *testing.T, run bool) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("recipes need make")
	}
	all := recipes(t)
	for _, want := range []string{"Add a GPU type", "Add a step kind", "Add a pipeline rule", "Add an outcome", "Add an attack", "Add a retry rule", "Add a page column", "Add an API endpoint", "Add a migration", "Add a node resource", "Add a slot limit"} {
		if !slices.ContainsFunc(all, func(r recipe) bool { return r.title == want }) {
			t.Errorf("%s has no recipe %q", contributing, want)
		}
	}
	dir := copyOfTree(t)
	for _, r := range all {
		t.Run(r.title, func(t *testing.T) {
			r.follow(t, dir, run)
		})
		shell(t, dir, "git reset -q --hard && git clean -fdq") // what is ignored stays: bin/
	}
}

// A recipe is a section of CONTRIBUTING.md below its title "Recipes".
type recipe struct {
	title  string
	blocks []block
}

// A block is text between fences.
type block struct {
	language string // behind the first fence
	line     int    // of the first fence
	text     string
}

var fence = regexp.MustCompile("^ *```(.*)$")

// blocks returns those of a page. Inside a list they are indented as the list is.
func blocks(page string) []block {
	var all []block
	inside, indent := false, ""
	for i, line := range strings.Split(page, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case m != nil && !inside:
			indent = line[:len(line)-len(strings.TrimLeft(line, " "))]
			all = append(all, block{language: m[1], line: i + 1})
		case inside && m == nil:
			last := &all[len(all)-1]
			last.text += strings.TrimPrefix(line, indent) + "\n"
		}
		if m != nil {
			inside = !inside
		}
	}
	return all
}

func recipes(t *testing.T) []recipe {
	t.Helper()
	_, text, ok := strings.Cut(readPage(t, contributing), "\n# Recipes\n")
	if !ok {
		t.Fatalf("%s has no recipes", contributing)
	}
	var all []recipe
	for _, section := range strings.Split(text, "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		all = append(all, recipe{title, blocks(body)})
	}
	return all
}

func (r recipe) follow(t *testing.T, dir string, run bool) {
	failed, edited, last := 0, 0, ""
	for _, b := range r.blocks {
		switch b.language {
		case "diff":
			edit(t, dir, b.text)
			edited++
		case "sh":
			for _, line := range strings.Split(strings.TrimSpace(b.text), "\n") {
				command, comment, _ := strings.Cut(line, "  # ")
				last = command
				if strings.HasPrefix(comment, "fails: ") {
					failed++
				}
				if run {
					try(t, dir, command, comment)
				}
			}
		default:
			t.Errorf("a block of the language %q, want diff or sh", b.language)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	if failed == 0 || edited == 0 {
		t.Errorf("%d edits and %d commands that fail before them: a recipe needs both", edited, failed)
	}
	if !strings.HasPrefix(last, "go test ") && !strings.HasPrefix(last, "make ") {
		t.Errorf("the recipe ends with %q, want a test", last)
	}
}

// try runs a command of a recipe. Its comment "fails: TEXT" or "prints: TEXT" is
// what must come of it; any other is for people, and the command must pass.
func try(t *testing.T, dir, command, comment string) {
	t.Helper()
	out, err := shellOutput(dir, command)
	text, wantFailure := strings.CutPrefix(comment, "fails: ")
	printed, wantText := strings.CutPrefix(comment, "prints: ")
	switch {
	case wantFailure && err == nil:
		t.Errorf("%s: passed, want it to fail with %q", command, text)
	case wantFailure && !strings.Contains(out, text):
		t.Errorf("%s: failed without the words %q:\n%s", command, text, out)
	case !wantFailure && err != nil:
		t.Errorf("%s: %v\n%s", command, err, out)
	case wantText && !strings.Contains(out, printed):
		t.Errorf("%s: printed nothing of %q:\n%s", command, printed, out)
	}
}

// edit makes the change of a diff block: "+++ FILE", then lines that are there
// (" ") with those that are new ("+") or go ("-"); "@@" begins another place. A
// place must occur once. A file with new lines only is created.
func edit(t *testing.T, dir, diff string) {
	t.Helper()
	name, rest, _ := strings.Cut(diff, "\n")
	name, ok := strings.CutPrefix(name, "+++ ")
	if !ok {
		t.Fatalf("a diff block begins with %q, want +++ FILE", name)
	}
	file := filepath.Join(dir, filepath.FromSlash(name))
	data, err := os.ReadFile(file)
	text := string(data)
	for _, place := range strings.Split(rest, "@@\n") {
		var older, newer strings.Builder
		for _, line := range strings.SplitAfter(place, "\n") {
			switch {
			case line == "" || line == "\n":
			case line[0] == '+':
				newer.WriteString(line[1:])
			case line[0] == '-':
				older.WriteString(line[1:])
			case line[0] == ' ':
				older.WriteString(line[1:])
				newer.WriteString(line[1:])
			default:
				t.Fatalf("%s: a diff's line begins with none of space, + and -: %q", name, line)
			}
		}
		switch found := strings.Count(text, older.String()); {
		case older.Len() == 0 && err == nil:
			t.Fatalf("%s exists already, and the diff does not say where in it", name)
		case older.Len() > 0 && found != 1:
			t.Fatalf("%s has this %d times, want once:\n%s", name, found, older.String())
		}
		text = strings.Replace(text, older.String(), newer.String(), 1)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// copyOfTree is a repository with what is tracked here, as it is now.
func copyOfTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range trackedFiles(t) {
		info, err := os.Lstat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted files are still listed
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	shell(t, dir, "git init -q && git add -Af && git -c user.name=test -c user.email=test@example.com commit -qm copy")
	return dir
}

func shell(t *testing.T, dir, command string) {
	t.Helper()
	if out, err := shellOutput(dir, command); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// shellOutput runs a command as a newcomer would, but for what makes it share
// the build cache with make build: paths are trimmed, and cgo is off.
func shellOutput(dir, command string) (string, error) {
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = dir
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "GIT_") && !strings.HasPrefix(name, "MAKE") && !strings.HasPrefix(name, "KBGEN_") && name != "MFLAGS" && name != "GOFLAGS" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "GOFLAGS=-trimpath -vet=off", "CGO_ENABLED=0", "GOWORK=off", "PWD="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
