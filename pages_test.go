package kbgen

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The two pages that tell people their way. What they name has to exist.
const (
	contributing = "CONTRIBUTING.md"
	architecture = "docs/architecture.md"
)

// The map lists every top-level directory, and the pages that people read first link
// to it.
func TestMapIsComplete(t *testing.T) {
	page := readPage(t, architecture)
	for _, name := range trackedFiles(t) {
		if dir, _, below := strings.Cut(name, "/"); below && !strings.Contains(page, "`"+dir+"/`") {
			t.Errorf("%s does not list %s/, which has %s", architecture, dir, name)
		}
	}
	for _, from := range []string{"README.md", contributing} {
		if !strings.Contains(readPage(t, from), "]("+architecture+")") {
			t.Errorf("%s does not link to %s", from, architecture)
		}
	}
}

func trackedFiles(t *testing.T) []string {
	t.Helper()
	return strings.Split(strings.TrimSuffix(goOutput(t, "git", "ls-files", "-z"), "\x00"), "\x00")
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	pathForm   = regexp.MustCompile(`^\.?[\w.*-]*(/[\w.*-]+)*/?$`)
	identifier = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)?$`)
	listItem   = regexp.MustCompile(`^\s*([0-9]+\.|-|\|) `)
	makeCall   = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
	goTest     = regexp.MustCompile(`^go test (\./\S+)(?: -run '?([A-Za-z]\w*))?`)
)

// The pages name files that exist, functions and types that the file before
// them declares, targets that the Makefile has and tests that there are.
func TestPagesNameWhatExists(t *testing.T) {
	makefile := readPage(t, "Makefile")
	for _, page := range []string{contributing, architecture} {
		text := readPage(t, page)
		files, declared := 0, 0
		prose := proseOf(text)
		inFile := "" // the Go file that the present item named last
		for i, line := range strings.Split(prose, "\n") {
			if strings.TrimSpace(line) == "" || listItem.MatchString(line) {
				inFile = ""
			}
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				span := m[1]
				switch {
				case strings.HasPrefix(span, "go test "):
					checkGoTest(t, page, i+1, span)
				case strings.Contains(span, "/") && pathForm.MatchString(span) || strings.HasSuffix(span, ".go") && pathForm.MatchString(span):
					found, err := filepath.Glob(filepath.FromSlash(strings.TrimSuffix(strings.TrimPrefix(span, "./"), "/")))
					if err != nil || len(found) == 0 {
						t.Errorf("%s:%d: %s does not exist", page, i+1, span)
					}
					files++
					if inFile = ""; strings.HasSuffix(span, ".go") {
						inFile = span
					}
				case inFile != "" && identifier.MatchString(span) && !strings.HasPrefix(span, "kb") && !strings.HasSuffix(span, ".json"):
					if !slices.Contains(declarations(t, inFile), span) {
						t.Errorf("%s:%d: %s declares no %s", page, i+1, inFile, span)
					}
					declared++
				}
			}
		}
		for _, m := range makeCall.FindAllStringSubmatch(strings.Join(codeOf(text), "\n"), -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", page, m[1])
			}
		}
		for _, b := range blocks(text) {
			for j, line := range strings.Split(b.text, "\n") {
				checkGoTest(t, page, b.line+1+j, line)
			}
		}
		if files < 10 || page == architecture && declared < 30 {
			t.Errorf("%s names %d files and %d declarations: is it still read as it is written?", page, files, declared)
		}
	}
}

var fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")

// proseOf returns a page with its blocks blanked, line by line.
func proseOf(page string) string {
	return fenced.ReplaceAllStringFunc(page, func(block string) string { return strings.Repeat("\n", strings.Count(block, "\n")) })
}

// codeOf returns what a page writes as code: spans and blocks.
func codeOf(page string) []string {
	var all []string
	for _, b := range blocks(page) {
		all = append(all, b.text)
	}
	for _, m := range codeSpan.FindAllStringSubmatch(proseOf(page), -1) {
		all = append(all, m[1])
	}
	return all
}

// checkGoTest refuses a go test of a package or a test that is not there.
func checkGoTest(t *testing.T, page string, line int, command string) {
	t.Helper()
	m := goTest.FindStringSubmatch(command)
	if m == nil {
		return
	}
	dir := strings.TrimSuffix(m[1], "/...")
	tests, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*_test.go"))
	if err != nil || len(tests) == 0 {
		t.Errorf("%s:%d: %s has no tests", page, line, m[1])
		return
	}
	if m[2] != "" && !slices.ContainsFunc(tests, func(file string) bool {
		return slices.ContainsFunc(declarations(t, file), func(name string) bool { return strings.HasPrefix(name, m[2]) })
	}) {
		t.Errorf("%s:%d: %s has no test %s", page, line, m[1], m[2])
	}
}

// declarations lists what a file declares at its top: functions, types, their
// methods as Type.Method, variables and constants; of a struct the fields, too.
func declarations(t *testing.T, name string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(name), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("%v", err)
		return nil
	}
	var all []string
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				all = append(all, d.Name.Name)
				continue
			}
			receiver := d.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			if base, ok := receiver.(*ast.Ident); ok {
				all = append(all, base.Name+"."+d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						all = append(all, name.Name)
					}
				case *ast.TypeSpec:
					all = append(all, spec.Name.Name)
					if s, ok := spec.Type.(*ast.StructType); ok {
						for _, field := range s.Fields.List {
							for _, name := range field.Names {
								all = append(all, spec.Name.Name+"."+name.Name)
							}
						}
					}
				}
			}
		}
	}
	return all
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Links and paths within the repository lead somewhere on every page, and tables
// and diagrams can be read without a wide screen.
func TestPagesCanBeRead(t *testing.T) {
	const widestRow, widestDiagram = 160, 100
	files := trackedFiles(t)
	top := map[string]bool{}
	for _, file := range files {
		top[strings.SplitAfter(file, "/")[0]] = true
	}
	for _, page := range files {
		if !strings.HasSuffix(page, ".md") {
			continue
		}
		text := readPage(t, page)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), filepath.FromSlash(target))); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
			}
		}
		for _, m := range codeSpan.FindAllStringSubmatch(proseOf(text), -1) {
			path := strings.TrimPrefix(m[1], "./")
			if !pathForm.MatchString(path) || !top[strings.SplitAfter(path, "/")[0]] || page == "CHANGELOG.md" {
				continue // a changelog also names what is no more
			}
			if found, err := filepath.Glob(filepath.FromSlash(strings.TrimSuffix(path, "/"))); err != nil || len(found) == 0 {
				t.Errorf("%s: %s does not exist", page, m[1])
			}
		}
		for i, line := range strings.Split(text, "\n") {
			if n := len([]rune(line)); strings.HasPrefix(line, "|") && n > widestRow {
				t.Errorf("%s:%d: a row of %d characters, want at most %d", page, i+1, n, widestRow)
			}
		}
	}
	for _, b := range blocks(readPage(t, architecture)) {
		for i, line := range strings.Split(b.text, "\n") {
			if n := len([]rune(line)); n > widestDiagram {
				t.Errorf("%s:%d: %d columns, want at most %d", architecture, b.line+1+i, n, widestDiagram)
			}
		}
	}
}

var testName = regexp.MustCompile("`((?:Test|Fuzz)\\w+)(?:/(\\w+))?`")

// Each promise to a vendor names tests that exist: a test, or a part of TestNode.
func TestThreatModelNamesTests(t *testing.T) {
	const page = "docs/threat-model.md"
	_, table, _ := strings.Cut(readPage(t, page), "| promise |")
	table, _, _ = strings.Cut(table, "\n\n")
	var sources strings.Builder
	for _, name := range trackedFiles(t) {
		if strings.HasSuffix(name, "_test.go") {
			sources.WriteString(readPage(t, name))
		}
	}
	rows := strings.Split(strings.TrimSpace(table), "\n")[2:]
	if len(rows) < 10 {
		t.Fatalf("%s: got %d promises, want the table of them", page, len(rows))
	}
	for _, row := range rows {
		names := testName.FindAllStringSubmatch(row, -1)
		if len(names) == 0 {
			t.Errorf("%s: no test shows this: %s", page, row)
		}
		for _, name := range names {
			if !strings.Contains(sources.String(), "\nfunc "+name[1]+"(") {
				t.Errorf("%s: there is no %s", page, name[1])
			}
			if part := strings.ReplaceAll(name[2], "_", " "); part != "" && !strings.Contains(sources.String(), `r.step(t, "`+part+`"`) {
				t.Errorf("%s: %s has no part %q", page, name[1], part)
			}
		}
	}
}
