package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
)

// taskColumn is a task as Kernelbot keeps it: exactly the keys that its readers
// pass on as arguments, one more would break them.
func taskColumn(t *task.Task) (string, error) {
	files := make([]schema.Param, len(t.Files))
	for i, f := range t.Files {
		text := f.Text
		if f.Submission {
			text = task.SubmissionMark
		}
		if strings.ContainsRune(text, 0) || strings.ContainsRune(f.Name, 0) {
			return "", fmt.Errorf("file %q: it holds U+0000, which PostgreSQL does not keep", f.Name)
		}
		files[i] = schema.Param{Name: f.Name, Value: schema.StringValue(text)}
	}
	seed := schema.Value{}
	if t.Seed != nil {
		seed = schema.IntValue(*t.Seed)
	}
	rankingBy := t.RankingBy
	if rankingBy == "" {
		rankingBy = schema.RankLast
	}
	members := []schema.Param{
		{Name: "lang", Value: schema.StringValue(t.Lang)},
		{Name: "files", Value: schema.ObjectValue(files)},
		{Name: "config", Value: configValue(t)},
		{Name: "libraries", Value: texts(t.Libraries)},
		{Name: "tests", Value: cases(t.Tests)},
		{Name: "test_timeout", Value: timeout(t.TestTimeout)},
		{Name: "benchmarks", Value: cases(t.Benchmarks)},
		{Name: "benchmark_timeout", Value: timeout(t.BenchmarkTimeout)},
		{Name: "ranked_timeout", Value: timeout(t.RankedTimeout)},
		{Name: "ranking_by", Value: schema.StringValue(rankingBy)},
		{Name: "seed", Value: seed},
		{Name: "multi_gpu", Value: schema.BoolValue(t.MultiGPU)},
	}
	return schema.ObjectValue(members).JSON(), nil
}

func configValue(t *task.Task) schema.Value {
	if t.Lang == schema.LangPython {
		return schema.ObjectValue([]schema.Param{{Name: "main", Value: schema.StringValue(t.Config.Main)}})
	}
	defines := make([]schema.Param, len(t.Config.Defines))
	for i, d := range t.Config.Defines {
		defines[i].Name = d.Name
		if d.Value != nil {
			defines[i].Value = schema.StringValue(*d.Value)
		}
	}
	return schema.ObjectValue([]schema.Param{
		{Name: "sources", Value: texts(t.Config.Sources)},
		{Name: "include_dirs", Value: texts(t.Config.IncludeDirs)},
		{Name: "defines", Value: schema.ObjectValue(defines)},
		{Name: "compile_flags", Value: texts(t.Config.CompileFlags)},
	})
}

func texts(list []string) schema.Value {
	values := make([]schema.Value, len(list))
	for i, s := range list {
		values[i] = schema.StringValue(s)
	}
	return schema.ListValue(values)
}

func cases(list []schema.Case) schema.Value {
	values := make([]schema.Value, len(list))
	for i, c := range list {
		values[i] = schema.ObjectValue(c)
	}
	return schema.ListValue(values)
}

// timeout is whole seconds; Kernelbot reads null as no limit.
func timeout(t schema.Timeout) schema.Value {
	d, limited := t.Limit()
	if !limited {
		return schema.Value{}
	}
	return schema.IntValue(int64(d.Seconds()))
}

// frozen are the parts of a task that a board with submissions does not change:
// their results could not be compared any more.
var frozen = []string{"files", "config", "lang", "benchmarks"}

// changedKeys lists the keys in which two tasks differ, in order of frozen first.
func changedKeys(old, wanted string) (hard, soft []string, err error) {
	var a, b map[string]any
	for _, doc := range []struct {
		text string
		into *map[string]any
	}{{old, &a}, {wanted, &b}} {
		dec := json.NewDecoder(strings.NewReader(doc.text))
		dec.UseNumber()
		if err := dec.Decode(doc.into); err != nil {
			return nil, nil, fmt.Errorf("reading a task that is kept: %w", err)
		}
	}
	differ := func(name string) bool {
		x, _ := json.Marshal(a[name])
		y, _ := json.Marshal(b[name])
		return !bytes.Equal(x, y)
	}
	for _, name := range frozen {
		if differ(name) {
			hard = append(hard, name)
		}
	}
	for _, name := range []string{"libraries", "tests", "test_timeout", "benchmark_timeout", "ranked_timeout", "ranking_by", "seed", "multi_gpu"} {
		if differ(name) {
			soft = append(soft, name)
		}
	}
	return hard, soft, nil
}
