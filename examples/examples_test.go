package examples

import (
	"io/fs"
	"path"
	"slices"
	"testing"

	"gopkg.in/yaml.v3"
)

// The keys that Kernelbot knows in a task.yml; any other is refused there, as
// ours is. A task of ours has no harness that Kernelbot could start.
// Source: gpu-mode/kernelbot, src/libkernelbot/task.py.
var taskKeys = []string{
	"files", "lang", "config", "description", "templates", "tests", "benchmarks",
	"test_timeout", "benchmark_timeout", "ranked_timeout", "ranking_by",
}

const ourKey = "harness"

func TestList(t *testing.T) {
	list := List()
	if len(list) != 4 {
		t.Fatalf("List() has %d examples, want 4", len(list))
	}
	for _, e := range list {
		if e.Name == "" || e.Dir == "" || e.Description == "" || (e.Lang != "py" && e.Lang != "cu") {
			t.Errorf("List() has %+v, want every field filled", e)
		}
		for _, name := range []string{"right", "wrong", "slow", "cheat"} {
			file, err := e.Submission(name)
			if err != nil {
				t.Error(err)
				continue
			}
			if _, err := fs.Stat(FS(), file); err != nil {
				t.Error(err)
			}
		}
		if _, err := e.Submission("none"); err == nil {
			t.Errorf("%s: Submission(none) gave no error", e.Name)
		}
	}
	if e, ok := Find("sort_py"); !ok || e.Name != "sort_py" {
		t.Errorf("Find(sort_py) = %+v, %v", e, ok)
	}
	if _, ok := Find("sort"); ok {
		t.Error("Find(sort) found something")
	}
}

func TestTaskFilesAreKernelbots(t *testing.T) {
	for _, e := range List() {
		text, err := fs.ReadFile(FS(), path.Join(e.Dir, "task.yml"))
		if err != nil {
			t.Fatal(err)
		}
		var keys map[string]yaml.Node
		if err := yaml.Unmarshal(text, &keys); err != nil {
			t.Fatal(err)
		}
		for key := range keys {
			if !slices.Contains(taskKeys, key) && key != ourKey {
				t.Errorf("%s: key %q, have %q", e.Name, key, taskKeys)
			}
		}
		if key := keys[ourKey]; key.Value != "isolated" {
			t.Errorf("%s: %s is %q, want isolated", e.Name, ourKey, key.Value)
		}
		task := readTask(t, e)
		if len(task.Tests) == 0 || len(task.Benchmarks) == 0 || len(task.Templates) == 0 {
			t.Errorf("%s: want tests, benchmarks and templates", e.Name)
		}
		for _, name := range task.Templates {
			if _, err := fs.Stat(FS(), path.Join(e.Dir, name)); err != nil {
				t.Errorf("%s: template: %v", e.Name, err)
			}
		}
	}
}
