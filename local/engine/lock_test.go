package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The rules of doc.go about who takes the engine's lock.
func TestLockRules(t *testing.T) {
	inside := []string{"sweep"} // unexported, and take the lock
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	locks := map[string]bool{}            // methods of Engine that take the lock
	calls := map[string][]*ast.CallExpr{} // by method: what it calls on its engine
	touches := map[string]*ast.CallExpr{} // by function: where it locks or unlocks
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch target := expression(call.Fun); {
				case target == "e.mu.Lock" || target == "change" || target == "query":
					if locks[fn.Name.Name] {
						t.Errorf("%s: %s takes the lock a second time", set.Position(call.Pos()), fn.Name.Name)
					}
					touches[fn.Name.Name], locks[fn.Name.Name] = call, true
				case target == "e.mu.Unlock" || strings.HasPrefix(target, "s.engine.mu."):
					touches[fn.Name.Name] = call
				case strings.HasPrefix(target, "e."):
					calls[fn.Name.Name] = append(calls[fn.Name.Name], call)
				}
				return true
			})
		}
	}
	if len(locks) < 50 {
		t.Fatalf("%d methods take the lock, want some fifty: is this test blind?", len(locks))
	}
	for _, name := range slices.Sorted(maps.Keys(touches)) {
		if !ast.IsExported(name) && !slices.Contains(inside, name) {
			t.Errorf("%s: %s touches the lock, which its callers hold", set.Position(touches[name].Pos()), name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		for _, call := range calls[name] {
			callee := strings.TrimPrefix(expression(call.Fun), "e.")
			held := locks[name] || !ast.IsExported(name) && name != "clock"
			if held && locks[callee] {
				t.Errorf("%s: %s holds the lock and calls %s, which takes it", set.Position(call.Pos()), name, callee)
			}
		}
	}
}

// expression spells a chain of selectors, "e.mu.Lock".
func expression(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return expression(e.X) + "." + e.Sel.Name
	}
	return ""
}
