package pipelines

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chosen lists the keys of the steps of a pipeline that run.
func chosen(t *testing.T, pipeline string, s Selection) ([]string, error) {
	t.Helper()
	p, err := Find(pipeline)
	if err != nil {
		t.Fatal(err)
	}
	var rows []GPUType
	for _, name := range []string{"CPU_BK", "H100_BK", "B200_BK", "L40S_BK", "MI300_BK"} { // not those that are still to come
		g, err := Fleet.On().Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Serves == nil || p.Serves(g) {
			rows = append(rows, g)
		}
	}
	steps, err := p.Steps(Request{GPUs: rows, Selection: s})
	var keys []string
	for _, step := range steps {
		if step.Skip == "" {
			keys = append(keys, step.Key)
		} else if len(step.Skip) > 70 {
			t.Errorf("%s: reason to skip of %d characters, Buildkite takes 70", step.Key, len(step.Skip))
		}
	}
	return keys, err
}

func TestSelection(t *testing.T) {
	for _, tt := range []struct {
		name, pipeline string
		s              Selection
		want           string
	}{
		{"all", "image", Selection{}, "image-cuda smoke-h100 smoke-b200 smoke-test image-rocm smoke-mi300"},
		{"a key", "smoke", Selection{Keys: []string{"smoke-h100"}}, "smoke-h100"},
		{"two keys", "smoke", Selection{Keys: []string{"smoke-h100", "smoke-mi300"}}, "smoke-h100 smoke-mi300"},
		{"a prefix", "image", Selection{Keys: []string{"image-*"}}, "image-cuda image-rocm"},
		{"a dependency comes along", "image", Selection{Keys: []string{"smoke-mi300"}}, "image-rocm smoke-mi300"},
		{"a tag", "smoke", Selection{Tags: []string{"nvidia"}}, "smoke-h100 smoke-b200 smoke-test"},
		{"two tags", "smoke", Selection{Tags: []string{"amd", "host"}}, "smoke-cpu smoke-mi300"},
		{"a GPU type as a tag", "smoke", Selection{Tags: []string{"B200_BK"}}, "smoke-b200"},
		{"key and tag", "smoke", Selection{Keys: []string{"smoke-*"}, Tags: []string{"amd"}}, "smoke-mi300"},
		{"nothing changed", "image", Selection{ByChange: true}, ""},
		{"both criteria, none of both", "smoke", Selection{Keys: []string{"smoke-h100"}, Tags: []string{"amd"}}, ""},
		{"kinds about no file always run", "evaluate", Selection{ByChange: true, Changed: []string{"docs/rules.md"}}, "evaluate-cpu evaluate-h100 evaluate-b200 evaluate-test evaluate-mi300"},
	} {
		got, err := chosen(t, tt.pipeline, tt.s)
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.name, strings.Join(got, " "), err, tt.want)
		}
	}
	for _, s := range []Selection{{Keys: []string{"smoke-h10"}}, {Keys: []string{"none*"}}, {Tags: []string{"nvida"}}} {
		if _, err := chosen(t, "smoke", s); !errors.As(err, new(*UnknownError)) {
			t.Errorf("%+v: %v, want an UnknownError", s, err)
		}
	}
	for _, file := range []string{"/etc/passwd", "../other"} {
		if _, err := chosen(t, "smoke", Selection{ByChange: true, Changed: []string{file}}); err == nil {
			t.Errorf("changed file %q is taken", file)
		}
	}
}

// The rules of what a change concerns have examples, which stand in
// testdata/changes.txt: a pipeline, the files, and the steps that must run.
func TestChangeRules(t *testing.T) {
	text, err := os.ReadFile("testdata/changes.txt")
	if err != nil {
		t.Fatal(err)
	}
	met := map[string]bool{}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		parts := strings.Split(line, ":")
		if len(parts) != 3 {
			t.Fatalf("changes.txt:%d: got %q, want PIPELINE: FILES: STEPS", i+1, line)
		}
		pipeline, files, want := strings.TrimSpace(parts[0]), strings.Fields(parts[1]), strings.Fields(parts[2])
		met[pipeline] = true
		got, err := chosen(t, pipeline, Selection{ByChange: true, Changed: files})
		if diff := cmp.Diff(want, got); err != nil || len(want)+len(got) > 0 && diff != "" {
			t.Errorf("changes.txt:%d: %s after %q (-want +got): %v\n%s", i+1, pipeline, files, err, diff)
		}
	}
	for _, k := range Kinds {
		for _, pattern := range k.Paths {
			pattern = strings.TrimSuffix(strings.TrimPrefix(pattern, "!"), "**")
			if _, err := path.Match(pattern, ""); err != nil || strings.HasPrefix(pattern, "/") || strings.Contains(pattern, "**") {
				t.Errorf("kind %s: pattern %q, want one of package path, and ** at its end alone", k.Name, pattern)
			}
			// A pattern of a folder or file that is gone selects nothing for ever.
			if !strings.ContainsAny(pattern, "*?[") {
				if _, err := os.Stat(path.Join("..", pattern)); err != nil {
					t.Errorf("kind %s: pattern %q: %v", k.Name, pattern, err)
				}
			}
		}
	}
	for _, pipeline := range []string{"ci", "image", "smoke", "isolation"} {
		if !met[pipeline] {
			t.Errorf("changes.txt has no line for pipeline %s", pipeline)
		}
	}
}

func TestConcerns(t *testing.T) {
	paths := []string{"cmd/**", "!cmd/docs/**", "go.mod", "tools/*.sh"}
	for file, want := range map[string]bool{
		"cmd/a/b.go": true, "cmd": false, "cmdx/a": false, "cmd/docs/x.md": false, "go.mod": true, "x/go.mod": false,
		"tools/a.sh": true, "tools/a/b.sh": false, "": false,
	} {
		if got := concerns(paths, file); got != want {
			t.Errorf("concerns(%q) = %v, want %v", file, got, want)
		}
	}
	if !slices.Equal([]bool{concerns([]string{"**"}, "any/thing")}, []bool{true}) {
		t.Error("** takes not everything")
	}
}

// Builds that nobody waits for yield to submissions.
func TestPriorityByOrigin(t *testing.T) {
	for _, tt := range []struct {
		pipeline, source, mode string
		want                   *int
	}{
		{"evaluate", "api", "leaderboard", new(1)},
		{"evaluate", "schedule", "leaderboard", new(-9)},
		{"smoke", "api", "", nil},
		{"smoke", "ui", "", nil},
		{"smoke", "schedule", "", new(-10)},
		{"smoke", "webhook", "", new(-5)},
		{"smoke", "something new", "", nil},
	} {
		p, err := Find(tt.pipeline)
		if err != nil {
			t.Fatal(err)
		}
		steps, err := p.Steps(Request{GPUs: Fleet[:1], Source: tt.source, Run: Run{Mode: tt.mode}})
		if err != nil {
			t.Fatal(err)
		}
		if got := steps[0].Priority; !cmp.Equal(got, tt.want) {
			t.Errorf("%s of a build by %s: priority %v, want %v", tt.pipeline, tt.source, deref(got), deref(tt.want))
		}
	}
}

func deref(p *int) any {
	if p == nil {
		return "none"
	}
	return *p
}
