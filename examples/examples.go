// Package examples holds tasks that anyone can run: each with a reference, and
// with submissions that are right, wrong, slow or cheating. They bring no
// harness: kbrun's own judges them.
// The files are carried inside the binary. The package reads just enough of a
// task.yml to list it, and knows nothing of payloads or evaluation.
package examples

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"gopkg.in/yaml.v3"
)

//go:embed README.md vectoradd_py matmul_py sort_py vectoradd_cu
var files embed.FS

// names lists the tasks in the order in which a reader meets them best.
func names() []string {
	return []string{"vectoradd_py", "matmul_py", "sort_py", "vectoradd_cu"}
}

// An Example is one task and the submissions that come with it.
type Example struct {
	Name        string   // "vectoradd_py"
	Dir         string   // folder within [FS] that holds task.yml
	Lang        string   // "py" or "cu"
	Description string   // first line of the task's description
	Submissions []string // file names in Dir/submissions, sorted: "cheat.py", "right.py"
}

// FS returns the examples' files: README.md at the top, one folder per task
// below, which needs none of its neighbours.
func FS() fs.FS { return files }

// List returns every example, the simplest first. The files are part of the
// program, so that a fault in them is one of the program's own: it panics.
func List() []Example {
	var list []Example
	for _, name := range names() {
		example, err := read(files, name)
		if err != nil {
			panic(fmt.Sprintf("examples: %v", err))
		}
		list = append(list, example)
	}
	return list
}

// Find returns the example called name, and whether there is one.
func Find(name string) (Example, bool) {
	for _, example := range List() {
		if example.Name == name {
			return example, true
		}
	}
	return Example{}, false
}

// Submission returns the path within [FS] of one of e.Submissions. The
// extension may be left out, "right" for "right.py".
func (e Example) Submission(name string) (string, error) {
	for _, file := range e.Submissions {
		if file == name || strings.TrimSuffix(file, path.Ext(file)) == name {
			return path.Join(e.Dir, "submissions", file), nil
		}
	}
	return "", fmt.Errorf("example %s: unknown submission %q, have %q", e.Name, name, e.Submissions)
}

func read(fsys fs.FS, name string) (Example, error) {
	text, err := fs.ReadFile(fsys, path.Join(name, "task.yml"))
	if err != nil {
		return Example{}, err
	}
	var task struct {
		Lang        string `yaml:"lang"`
		Description string `yaml:"description"`
	}
	if err := yaml.Unmarshal(text, &task); err != nil {
		return Example{}, fmt.Errorf("%s/task.yml: %w", name, err)
	}
	entries, err := fs.ReadDir(fsys, path.Join(name, "submissions"))
	if err != nil {
		return Example{}, err
	}
	first, _, _ := strings.Cut(task.Description, "\n")
	example := Example{Name: name, Dir: name, Lang: task.Lang, Description: first}
	for _, entry := range entries {
		if path.Ext(entry.Name()) == "."+task.Lang {
			example.Submissions = append(example.Submissions, entry.Name())
		}
	}
	return example, nil
}
