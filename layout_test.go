package kbgen

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gpu-mode/kbgen/"

// rooms says which of our own packages each part of the house may import.
// Data flows one way: pipelines → generator → YAML → agent → runner → result →
// launcher; schema is the ground floor.
var rooms = []struct {
	room string
	may  []string
}{
	{"schema", []string{"schema"}},
	{"pipelines", []string{"schema"}},
	{"generator", []string{"schema", "pipelines"}},
	{"runner", []string{"schema", "runner"}},
	{"launcher", []string{"schema"}},
	{"local", []string{"schema", "local"}},
	{"examples", nil},
	{"templates", nil},
	{"cmd/internal", nil},
	{"cmd", []string{"schema", "pipelines", "generator", "runner", "launcher", "local", "examples", "templates", "node", "cmd"}},
}

// onlyHere says which part alone may import a module.
var onlyHere = map[string]string{
	"github.com/buildkite/go-buildkite/v3": "launcher",
	"github.com/NVIDIA/go-nvml":            "runner/device",
}

type pkg struct {
	ImportPath string
	Imports    []string
	Module     *struct{ Path string }
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Module", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func within(path, room string) bool { return path == room || strings.HasPrefix(path, room+"/") }

func TestImportsFollowTheData(t *testing.T) {
	packages := listPackages(t)
	if len(packages) < 10 {
		t.Fatalf("go list found %d packages only", len(packages))
	}
	for _, p := range packages {
		here, ours := strings.CutPrefix(p.ImportPath, module)
		if !ours {
			continue // the root, which holds this test only
		}
		at := slices.IndexFunc(rooms, func(r struct {
			room string
			may  []string
		}) bool {
			return within(here, r.room)
		})
		if at < 0 && !within(here, "e2e") {
			t.Errorf("%s lies in no room of the house: add it to rooms", here)
			continue
		}
		for _, imported := range p.Imports {
			if there, ours := strings.CutPrefix(imported, module); ours {
				if at >= 0 && !slices.ContainsFunc(rooms[at].may, func(room string) bool { return within(there, room) }) {
					t.Errorf("%s imports %s, which %s may not", here, there, rooms[at].room)
				}
			}
			for lib, owner := range onlyHere {
				if within(imported, lib) && !within(here, owner) {
					t.Errorf("%s imports %s, which only %s may", here, imported, owner)
				}
			}
		}
	}
}

// The generator is pure: it touches no environment, file, clock or network.
func TestGeneratorIsPure(t *testing.T) {
	for _, p := range listPackages(t) {
		here := strings.TrimPrefix(p.ImportPath, module)
		if !within(here, "generator") && !within(here, "pipelines") {
			continue
		}
		for _, imported := range p.Imports {
			if slices.Contains([]string{"os", "os/exec", "net", "net/http", "math/rand", "math/rand/v2", "crypto/rand"}, imported) {
				t.Errorf("%s imports %s", here, imported)
			}
		}
	}
}

// The process's environment is read in cmd only.
func TestEnvironmentIsReadInCmdOnly(t *testing.T) {
	read := []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "cmd" || path == "tools" || path == "bin" || path == "e2e" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && (x.Name == "os" || x.Name == "syscall") && slices.Contains(read, s.Sel.Name) {
					t.Errorf("%s reads the environment: %s.%s", files.Position(n.Pos()), x.Name, s.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
