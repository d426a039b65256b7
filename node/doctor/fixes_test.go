package doctor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/node"
)

// fixPrograms are those that fixes begin with if they are commands.
var fixPrograms = []string{
	"chmod", "chown", "dmesg", "echo", "gpasswd", "journalctl", "kbnode", "modprobe", "nvidia-ctk", "nvidia-smi", "reboot", "swapoff", "sysctl", "systemctl", "timedatectl",
}

// commands counts the parts of a fix that look like commands.
func commands(fix string) (n, parts int) {
	for part := range strings.SplitSeq(fix, "; ") {
		program, _, _ := strings.Cut(part, " ")
		if slices.Contains(fixPrograms, program) {
			n++
		}
		parts++
	}
	return n, parts
}

// Each command that doctor prints is run in the guest, or the list gives the reason why
// not. The list also gives a reason for each fix in words, which must not look like a
// command.
func TestFixesAreRunOrCannotBe(t *testing.T) {
	listed := testenv.Fixes(t, "testdata/fixes.yml")
	codes := map[string]bool{"gpu-memory": true} // never a fault
	for _, l := range listed {
		codes[l.Code] = true
		switch n, parts := commands(l.Fix); {
		case l.Words != "" && l.Untried != "", l.Words+l.Untried+l.Breaks == "":
			t.Errorf("%s: %q: want breaks, or one of words and untried", l.Code, l.Fix)
		case l.Words != "" && n > 0:
			t.Errorf("%s: %q looks like a command, and is none", l.Code, l.Fix)
		case l.Words == "" && n < parts:
			t.Errorf("%s: %q does not look like a command", l.Code, l.Fix)
		case l.Breaks != "" && (l.Words+l.Untried != "") != (l.Mend != ""):
			t.Errorf("%s: %q: want mend if the guest does not run it, and only then", l.Code, l.Fix)
		}
	}
	for _, code := range checkCodes() {
		if !codes[code] {
			t.Errorf("no fix of the check %s is listed", code)
		}
	}
	for _, r := range printed(t) {
		if !slices.ContainsFunc(listed, func(l *testenv.Fix) bool { return l.Matches(r.Code, r.Fix) }) {
			t.Errorf("%s: %q is not listed", r.Code, r.Fix)
		}
	}
	for _, text := range literals(t) {
		if !slices.ContainsFunc(listed, func(l *testenv.Fix) bool { return strings.Contains(l.Fix, text) }) {
			t.Errorf("no listed fix has %q", text)
		}
	}
}

func checkCodes() (codes []string) {
	for _, c := range slices.Concat(machineChecks, bareChecks) {
		codes = append(codes, c.code)
	}
	for _, c := range slotChecks {
		codes = append(codes, c.code)
	}
	return codes
}

// printed returns the results that the tests' faults lead to.
func printed(t *testing.T) (results []Result) {
	add := func(found []Result) {
		for _, r := range found {
			if r.State == Failure || r.State == Warning {
				results = append(results, r)
			}
		}
	}
	var injects []func(*world)
	for _, f := range faults(node.Slot{Name: "gpu0"}) {
		injects = append(injects, f.inject)
	}
	for _, r := range remedies() {
		injects = append(injects, r.inject)
	}
	for _, inject := range injects {
		w := healthy(t)
		w.smi(answering)
		w.config.QueueFile = "/root/node.yml"
		inject(w)
		add(w.examine(false))
	}
	for _, f := range bareFaults() {
		w := fresh(t)
		f.inject(w)
		add(w.preflight().Checks)
	}
	return results
}

// verbs are those of package fmt.
var verbs = regexp.MustCompile(`%[a-z]`)

// literals returns the texts that the calls of fail and warn in this package name as
// fixes, and the fixes of devices, whether or not a test leads to them.
func literals(t *testing.T) (texts []string) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	add := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				texts = append(texts, verbs.Split(text, -1)...)
			}
			return true
		})
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "fail" || f.Sel.Name == "warn") {
					add(n.Args[0])
				}
			case *ast.ValueSpec:
				if n.Names[0].Name == "fixes" {
					add(n)
				}
			}
			return true
		})
	}
	return texts
}
