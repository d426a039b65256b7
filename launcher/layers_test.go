package launcher

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layers are the files of this package, the lowest first: a function calls
// functions of its own file and of lower layers only.
var layers = []string{
	"doc build",                          // values
	"quota estimate run",                 // what is known of the API's limit, of past builds, and of one run
	"request transport",                  // one request
	"list artifact",                      // what the API has
	"inspect noresult create submission", // builds
	"watcher poll loop",                  // the shared polling
	"wait submit",                        // one run from its creation to its result
	"client",
}

func TestCallsGoDownTheLayers(t *testing.T) {
	order := strings.Fields(strings.Join(layers, " "))
	set := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if !slices.Contains(order, strings.TrimSuffix(name, ".go")) {
			t.Errorf("%s is in no layer: add it to layers", name)
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}} // types of other packages are unknown, which is no matter
	pkg, _ := config.Check("launcher", set, files, info)
	level := func(at token.Pos) int {
		return slices.Index(order, strings.TrimSuffix(filepath.Base(set.Position(at).Filename), ".go"))
	}
	calls := 0
	for id, object := range info.Uses {
		if _, ok := object.(*types.Func); !ok || object.Pkg() != pkg {
			continue
		}
		calls++
		if level(object.Pos()) > level(id.Pos()) {
			t.Errorf("%s: %s of %s is above", set.Position(id.Pos()), id.Name, filepath.Base(set.Position(object.Pos()).Filename))
		}
	}
	if calls < 300 {
		t.Errorf("found %d calls only", calls)
	}
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }
