package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/examples"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
)

// readTask finds a task and a submission by path, or among the examples. What
// lies on disk comes first.
func readTask(name, submission string) (*task.Task, schema.File, error) {
	if _, err := os.Stat(name); err == nil {
		t, err := task.LoadDir(name)
		if err != nil {
			return nil, schema.File{}, err
		}
		file, err := openSubmission(submission)
		return t, file, err
	}
	example, ok := examples.Find(name)
	if !ok {
		var have []string
		for _, e := range examples.List() {
			have = append(have, e.Name)
		}
		return nil, schema.File{}, fmt.Errorf("task: got %q, want a folder with a %s or one of the examples %q", name, task.FileName, have)
	}
	t, err := task.Load(examples.FS(), example.Dir)
	if err != nil {
		return nil, schema.File{}, err
	}
	if _, err := os.Stat(submission); err == nil {
		file, err := openSubmission(submission)
		return t, file, err
	}
	path, err := example.Submission(submission)
	if err != nil {
		return nil, schema.File{}, fmt.Errorf("%w, or a file", err)
	}
	f, err := examples.FS().Open(path)
	if err != nil {
		return nil, schema.File{}, err
	}
	defer f.Close()
	file, err := readSubmission(f, path)
	return t, file, err
}

type examplesCmd struct{}

// Run lists the examples.
func (*examplesCmd) Run(_ context.Context, env *cli.Env) error {
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TASK\tLANG\tSUBMISSIONS\tDESCRIPTION")
	for _, e := range examples.List() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.Name, e.Lang, strings.Join(e.Submissions, " "), e.Description)
	}
	return w.Flush()
}
