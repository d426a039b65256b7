package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/examples"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A job is one evaluation of a submission: on one GPU type.
type job struct {
	gpu     pipelines.GPUType
	queue   string // the row's, or a vendor's own
	payload *schema.Payload
	runID   string // "" for one by chance

	task, file string // names, for people
}

// jobs checks everything that can be checked without Buildkite.
func (s *submitCmd) jobs(env *cli.Env) ([]job, error) {
	t, file, err := s.read(env)
	if err != nil {
		return nil, err
	}
	directives, err := schema.ParseDirectives(file.Text)
	if err != nil {
		return nil, fmt.Errorf("submission %s: %w", file.Name, err)
	}
	rows, queue, err := s.rows(directives)
	if err != nil {
		return nil, err
	}
	var all []job
	for _, row := range rows {
		arch := &row.Arch
		if row.Arch == "" {
			arch = nil
		}
		payload, err := t.Payload(file, s.Mode, arch, nil)
		if err != nil {
			return nil, err
		}
		j := job{gpu: row, queue: cmp.Or(queue, row.Queue), payload: payload, runID: s.RunID, task: s.taskName(directives), file: filepath.Base(file.Name)}
		if s.RunID != "" && len(rows) > 1 {
			j.runID += "-" + row.Name // one run on each GPU type
		}
		if _, number := buildNumber(j.runID); j.runID != "" && (number || !launcher.ValidRunID(j.runID)) {
			return nil, fmt.Errorf("--run-id: got %s, want up to 200 letters, digits, dots, colons, - and _, and no number alone, which names a build", text.Quote(j.runID))
		}
		all = append(all, j)
	}
	return all, nil
}

// taskName is what people call the task.
func (s *submitCmd) taskName(d schema.Directives) string {
	if s.Task == "" {
		return d.Leaderboard
	}
	return filepath.Base(filepath.Clean(s.Task))
}

// rows are the GPU types asked for, and the queue where one was named: by flags,
// else by the submission's own text.
func (s *submitCmd) rows(d schema.Directives) (rows []pipelines.GPUType, queue string, err error) {
	names := s.GPU
	if len(names) == 0 && s.Queue != "" {
		row, err := pipelines.Fleet.LookupQueue(s.Queue)
		return []pipelines.GPUType{row}, s.Queue, err
	}
	if len(names) == 0 {
		names = d.GPUs
	}
	if len(names) == 0 {
		return nil, "", cli.WithHint(errors.New("no GPU type: give --gpu, --queue, or a line #!POPCORN gpus NAME in the submission"), "kbgen gpus lists them")
	}
	for _, name := range names {
		row, err := pipelines.Fleet.Lookup(name)
		if err != nil {
			return nil, "", err
		}
		if !slices.ContainsFunc(rows, func(r pipelines.GPUType) bool { return r.Name == row.Name }) {
			rows = append(rows, row)
		}
	}
	if s.Queue == "" {
		return rows, "", nil
	}
	of, err := pipelines.Fleet.LookupQueue(s.Queue)
	if err != nil {
		return nil, "", err
	}
	if len(rows) != 1 || rows[0].Name != of.Name {
		return nil, "", fmt.Errorf("--queue %s: it is for %s alone, got --gpu %s", s.Queue, of.Name, strings.Join(names, ","))
	}
	return rows, s.Queue, nil
}

// read finds the task and the submission. With one argument that is the
// submission, which names its task itself.
func (s *submitCmd) read(env *cli.Env) (*task.Task, schema.File, error) {
	if s.Submission == "" {
		s.Submission, s.Task = s.Task, ""
	}
	if s.Task != "" {
		return s.readBoth(env, s.Task)
	}
	if s.Submission != "-" {
		if _, err := os.Stat(s.Submission); err != nil {
			return nil, schema.File{}, cli.WithHint(fmt.Errorf("got %q alone, want a task and a submission, or a file that names its task", s.Submission), "kblaunch submit --help")
		}
	}
	file, err := task.OpenSubmission(env.Stdin, s.Submission, ".py")
	if err != nil {
		return nil, file, err
	}
	d, err := schema.ParseDirectives(file.Text)
	if err != nil {
		return nil, file, fmt.Errorf("submission %s: %w", file.Name, err)
	}
	if d.Leaderboard == "" {
		return nil, file, cli.WithHint(fmt.Errorf("submission %s: it names no task: give TASK, or begin the file with #!POPCORN leaderboard NAME", file.Name), "kblaunch submit --help")
	}
	// A backend's submissions come from strangers: they name a task, and no place
	// on this machine.
	if strings.ContainsAny(d.Leaderboard, `/\`) || strings.HasPrefix(d.Leaderboard, ".") {
		return nil, file, cli.WithHint(fmt.Errorf("submission %s: #!POPCORN leaderboard: got %s, want a name, not a path", file.Name, text.Quote(d.Leaderboard)), "kblaunch submit TASK SUBMISSION takes a task from anywhere")
	}
	t, _, err := findTask(d.Leaderboard)
	if err == nil && s.Submission == "-" && t.Lang == schema.LangCUDA {
		file.Name = "stdin.cu"
	}
	return t, file, err
}

// readBoth finds a task and a submission by path, or among the examples. What
// lies on disk comes first.
func (s *submitCmd) readBoth(env *cli.Env, name string) (*task.Task, schema.File, error) {
	t, example, err := findTask(name)
	if err != nil {
		return nil, schema.File{}, err
	}
	extension := ".py"
	if t.Lang == schema.LangCUDA {
		extension = ".cu"
	}
	if _, err := os.Stat(s.Submission); err == nil || s.Submission == "-" || example == nil {
		file, err := task.OpenSubmission(env.Stdin, s.Submission, extension)
		return t, file, err
	}
	path, err := example.Submission(s.Submission)
	if err != nil {
		return nil, schema.File{}, fmt.Errorf("%w, or a file", err)
	}
	f, err := examples.FS().Open(path)
	if err != nil {
		return nil, schema.File{}, err
	}
	defer f.Close()
	file, err := task.ReadSubmission(f, path)
	return t, file, err
}

// findTask finds a task by path, or among the examples, which it returns then.
func findTask(name string) (*task.Task, *examples.Example, error) {
	if _, err := os.Stat(name); err == nil {
		t, err := task.LoadDir(name)
		return t, nil, err
	}
	example, ok := examples.Find(name)
	if !ok {
		return nil, nil, fmt.Errorf("task: got %q, want a folder with a %s or one of the examples %q", name, task.FileName, exampleNames())
	}
	t, err := task.Load(examples.FS(), example.Dir)
	return t, &example, err
}
