package kbgen

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const ours = "github.com/gpu-mode/kbgen/"

// layers says which of our own packages each part of the repository may import,
// besides its own. Data flows one way: pipelines → generator → YAML → agent →
// runner → result → launcher → store → server's pages. The first part that a
// package lies in counts, so a part stands before what encloses it. Parts that
// are still to come stand here already.
var layers = []struct {
	part string
	may  []string
}{
	{"internal", []string{"schema"}}, // for tests of several parts
	{"schema", nil},
	{"secrets", []string{"schema"}},
	{"pipelines", []string{"schema"}},
	{"generator", []string{"schema", "pipelines"}},
	{"runner/job", []string{"schema", "secrets", "verdict", "runner", "node/broker/client"}}, // what kbrun does around the judging
	{"runner", []string{"schema", "secrets"}},
	{"verdict", []string{"schema"}},
	{"launcher/seal", []string{"schema", "secrets"}}, // kblaunch and kbserve read the same file
	{"launcher", []string{"schema"}},
	{"store", []string{"schema", "verdict"}},
	{"server/servertest", []string{"schema", "store", "server/backend", "internal/pgtest"}},
	{"server", []string{"schema", "secrets", "pipelines", "verdict", "launcher", "store", "examples"}},
	{"templates", []string{"schema"}},
	{"node/setup", []string{"schema", "pipelines", "node"}},
	{"node/trial", []string{"schema", "pipelines", "generator", "launcher", "node", "templates"}}, // tries a machine with what kbgen writes
	{"node/step", []string{"schema", "node", "runner/agent"}},                                     // runs a job, for which the agent speaks
	{"node", []string{"schema", "secrets", "templates", "runner/device"}},
	{"examples", nil},

	// The engine knows nobody; what stands on it does not know each other.
	{"local/engine", []string{"schema", "local/steps"}},
	{"local/agentapi", []string{"schema", "local/engine", "local/blob"}},
	{"local/restapi", []string{"schema", "local/engine", "local/document"}},
	{"local/page", []string{"schema", "verdict", "local/engine", "local/steps"}},
	{"local/notice", []string{"schema", "local/engine", "local/document"}},
	{"local/document", []string{"local/engine"}},
	{"local/blob", []string{"local/engine"}},
	{"local/fault", []string{"schema"}},
	{"local/steps", []string{"schema"}},
	{"local/spawn", []string{"schema"}},
	{"local/session", []string{"schema", "local", "local/engine", "local/spawn", "local/steps"}}, // what kblocal's commands do
	{"local", []string{"schema"}},

	{"tools/popcorn", []string{"internal/popcorn"}}, // the demo's client
	{"cmd/internal", []string{"schema", "secrets"}},
	{"cmd/kbnode", []string{"schema", "secrets", "pipelines", "launcher", "templates", "node", "runner/agent", "cmd/internal"}},
	{"cmd", []string{"schema", "secrets", "pipelines", "generator", "runner", "verdict", "launcher", "store", "server", "templates", "node", "examples", "local"}},
}

// onlyHere says which part alone may import a module.
var onlyHere = map[string]string{
	"github.com/buildkite/go-buildkite/v3": "launcher",
	"github.com/NVIDIA/go-nvml":            "runner/device",
	"github.com/jackc/pgx/v5":              "store",
	"github.com/pressly/goose/v3":          "store",
	"modernc.org/sqlite":                   "store",
	"github.com/parquet-go/parquet-go":     "store",
	"database/sql":                         "store",
}

// notHere says which packages a program must not link, because it has no use for
// them or must stay small.
var notHere = map[string][]string{
	"cmd/kbserve": {"go.opentelemetry.io", "google.golang.org/grpc"},                                                        // only with the tag otel
	"cmd/kbnode":  {ours + "local"},                                                                                         // kbnode verify starts kblocal
	"cmd/kbrun":   {"net/http", "filippo.io", "golang.org/x/crypto", "gopkg.in/yaml.v3", "github.com/xeipuuv/gojsonschema"}, // it asks the node's broker, and opens nothing itself
}

// pure are the parts that touch no environment, file, clock or network.
var pure = []string{"generator", "pipelines", "verdict", "store/ranking", "store/queue", "launcher/pace", "server/simulate", "secrets", "node/plan", "node/cpulist", "node/limits", "runner/plan", "runner/judge", "runner/explain", "schema/pipeline", "schema/queuefile", "schema/text", "schema/format", "schema/token", "schema/validation"}

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

func within(path, part string) bool { return path == part || strings.HasPrefix(path, part+"/") }

// layer returns the index of the part that a package lies in, -1 for none.
func layer(path string) int {
	for i, l := range layers {
		if within(path, l.part) {
			return i
		}
	}
	return -1
}

func TestImportsFollowTheData(t *testing.T) {
	packages := listPackages(t)
	if len(packages) < 10 {
		t.Fatalf("go list found %d packages only", len(packages))
	}
	for _, p := range packages {
		here, inside := strings.CutPrefix(p.ImportPath, ours)
		if !inside || within(here, "e2e") {
			continue // the root and e2e hold tests only
		}
		at := layer(here)
		if at < 0 {
			t.Errorf("%s lies in no part of the repository: add it to layers", here)
			continue
		}
		for _, imported := range p.Imports {
			if there, inside := strings.CutPrefix(imported, ours); inside && !within(there, layers[at].part) &&
				!slices.ContainsFunc(layers[at].may, func(part string) bool { return within(there, part) }) {
				t.Errorf("%s imports %s, which %s may not", here, there, layers[at].part)
			}
			for lib, owner := range onlyHere {
				if within(imported, lib) && !within(here, owner) {
					t.Errorf("%s imports %s, which only %s may", here, imported, owner)
				}
			}
		}
	}
}

func TestProgramsStayLean(t *testing.T) {
	for program, banned := range notHere {
		out, err := exec.Command("go", "list", "-deps", "./"+program).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		deps := strings.Fields(string(out))
		if !slices.Contains(deps, ours+"schema") {
			t.Fatalf("go list -deps ./%s says %d packages and not our own", program, len(deps))
		}
		for _, dep := range deps {
			for _, lib := range banned {
				if within(dep, lib) {
					t.Errorf("%s is linked with %s", program, dep)
				}
			}
		}
	}
}

func TestPureParts(t *testing.T) {
	outside := []string{"os", "os/exec", "net", "net/http", "math/rand", "math/rand/v2", "crypto/rand", "golang.org/x/sys/unix"}
	for _, p := range listPackages(t) {
		here := strings.TrimPrefix(p.ImportPath, ours)
		if !slices.ContainsFunc(pure, func(part string) bool { return within(here, part) }) {
			continue
		}
		for _, imported := range p.Imports {
			if slices.Contains(outside, imported) {
				t.Errorf("%s imports %s and shall be pure", here, imported)
			}
		}
	}
}

// A name that programs must agree on is spelt in schema/wire.go and nowhere
// else in the code; tests, help pages and documents spell it, and spell none
// that does not exist.
func TestNamesOfVariablesHaveOneHome(t *testing.T) {
	home, err := os.ReadFile("schema/wire.go")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"KERNELBOT_SECRET": true} // a prefix
	for _, m := range regexp.MustCompile(`Env(Secret)?Prefix \+ "([A-Z0-9_]+)"`).FindAllStringSubmatch(string(home), -1) {
		known["KERNELBOT_"+m[2]], known["KERNELBOT_SECRET_"+m[2]] = true, true
	}
	if len(known) < 20 {
		t.Fatalf("schema/wire.go declares %d names only", len(known))
	}
	quoted := regexp.MustCompile(`"KERNELBOT_[A-Z0-9_]*"`)
	word := regexp.MustCompile(`\bKERNELBOT_[A-Z0-9_]*[A-Z0-9]`)
	chunk := regexp.MustCompile(`^KERNELBOT_(SECRET_)?PAYLOAD_[0-9]+$`)
	tag := regexp.MustCompile(`var:"KERNELBOT_[A-Z0-9_]*"`)
	for _, name := range strings.Fields(goOutput(t, "git", "ls-files", "*.go", "*.md", "*.yml", "*.sh", "*.Dockerfile")) {
		text, err := os.ReadFile(name)
		if err != nil || name == "schema/wire.go" || name == "layout_test.go" || strings.Contains(name, "testdata/") {
			continue
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			for _, found := range quoted.FindAllString(tag.ReplaceAllString(string(text), ""), -1) {
				t.Errorf("%s spells %s: schema/wire.go has a constant for it", name, found)
			}
		}
		if strings.HasSuffix(name, "_test.go") {
			continue // they make names up
		}
		for _, found := range word.FindAllString(string(text), -1) {
			if !known[found] && !chunk.MatchString(found) {
				t.Errorf("%s speaks of %s, which schema/wire.go does not know", name, found)
			}
		}
	}
}

func goOutput(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return string(out)
}

// Only cmd, tools and test helpers read the process's environment.
func TestEnvironmentIsReadInCmdOnly(t *testing.T) {
	read := []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "cmd" || path == "tools" || path == "bin" || path == "e2e" || path == "internal/testenv" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != "."):
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
