package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
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
	rankingBy := cmp.Or(t.RankingBy, schema.RankLast)
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

func listValue[T any](list []T, item func(T) schema.Value) schema.Value {
	values := make([]schema.Value, len(list))
	for i, v := range list {
		values[i] = item(v)
	}
	return schema.ListValue(values)
}

func texts(list []string) schema.Value { return listValue(list, schema.StringValue) }

func cases(list []schema.Case) schema.Value {
	return listValue(list, func(c schema.Case) schema.Value { return schema.ObjectValue(c) })
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
	differ := func(name string) bool { return !reflect.DeepEqual(a[name], b[name]) }
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

// extensionColumn selects what [extensionText] wrote from own.board, aliased as b. Rows that
// are older than the extension have the harness only.
const extensionColumn = `coalesce(nullif(b.task_extension, ''), b.task_harness, '')`

// extensionText is the harness, if the task asks for nothing else, or a JSON object.
func extensionText(e schema.Extension) string {
	if e == (schema.Extension{Harness: e.Harness}) {
		return e.Harness
	}
	data, err := json.Marshal(e)
	if err != nil {
		panic(err) // texts and finite numbers, see schema.Extension.Faults
	}
	return string(data)
}

// extensionFrom is what [extensionText] wrote.
func extensionFrom(text string) (e schema.Extension, err error) {
	if !strings.HasPrefix(text, "{") {
		return schema.Extension{Harness: text}, nil
	}
	if err = json.Unmarshal([]byte(text), &e); err != nil {
		err = fmt.Errorf("decoding the task's extension: %w", err)
	}
	return e, err
}

// taskFrom is the task that [taskColumn] wrote, or Kernelbot; extension is what its
// column has no keys for, as [extensionText] wrote it. Description, templates and GPU
// types stand elsewhere. Keys that a row lacks have Kernelbot's defaults, as older rows do.
//
// Errors: the key whose value cannot be used; none quotes a value.
func taskFrom(column, extension string) (*task.Task, error) {
	r := &taskReader{}
	m := r.object("the task", json.RawMessage(column))
	t := &task.Task{
		Lang:             r.text("lang", m.get("lang")),
		Libraries:        r.texts("libraries", m.get("libraries")),
		Tests:            r.cases("tests", m.get("tests")),
		Benchmarks:       r.cases("benchmarks", m.get("benchmarks")),
		TestTimeout:      r.timeout("test_timeout", m.get("test_timeout")),
		BenchmarkTimeout: r.timeout("benchmark_timeout", m.get("benchmark_timeout")),
		RankedTimeout:    r.timeout("ranked_timeout", m.get("ranked_timeout")),
		RankingBy:        schema.RankLast,
	}
	var err error
	if t.Extension, err = extensionFrom(extension); err != nil {
		return nil, err
	}
	for _, f := range r.object("files", m.get("files")) {
		file := task.File{Name: f.name, Text: r.text("files", f.value)}
		if file.Text == task.SubmissionMark {
			file.Text, file.Submission = "", true
		}
		t.Files = append(t.Files, file)
	}
	config := r.object("config", m.get("config"))
	if t.Lang == schema.LangPython {
		t.Config.Main = r.text("config: main", config.get("main"))
	} else {
		t.Config.Sources = r.texts("config: sources", config.get("sources"))
		t.Config.IncludeDirs = r.texts("config: include_dirs", config.get("include_dirs"))
		t.Config.CompileFlags = r.texts("config: compile_flags", config.get("compile_flags"))
		t.Config.Defines = r.defines(config.get("defines"))
	}
	if by := m.get("ranking_by"); !null(by) {
		t.RankingBy = r.text("ranking_by", by)
	}
	r.decode("seed", m.get("seed"), &t.Seed)
	r.decode("multi_gpu", m.get("multi_gpu"), &t.MultiGPU)
	if r.err != nil {
		return nil, fmt.Errorf("reading a task that is kept: %w", r.err)
	}
	return t, nil
}

// taskReader reads a task's column and keeps the first fault.
type taskReader struct{ err error }

// entries are an object's members in their order.
type entries []struct {
	name  string
	value json.RawMessage
}

func (e entries) get(name string) json.RawMessage {
	for _, m := range e {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

func null(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func (r *taskReader) fault(what, want string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: want %s", what, want)
	}
}

// decode leaves what it reads into as it is for null.
func (r *taskReader) decode(what string, raw json.RawMessage, into any) {
	if !null(raw) && json.Unmarshal(raw, into) != nil {
		r.fault(what, strings.TrimLeft(fmt.Sprintf("%T", into), "*"))
	}
}

func (r *taskReader) object(what string, raw json.RawMessage) (all entries) {
	if null(raw) {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		r.fault(what, "an object")
		return nil
	}
	for dec.More() {
		name, err := dec.Token()
		var value json.RawMessage
		if err == nil {
			err = dec.Decode(&value)
		}
		if err != nil {
			r.fault(what, "an object")
			return nil
		}
		text, _ := name.(string) // the decoder refuses any other kind here
		all = append(all, struct {
			name  string
			value json.RawMessage
		}{text, value})
	}
	return all
}

func (r *taskReader) list(what string, raw json.RawMessage) (items []json.RawMessage) {
	if !null(raw) && json.Unmarshal(raw, &items) != nil {
		r.fault(what, "a list")
	}
	return items
}

func (r *taskReader) text(what string, raw json.RawMessage) (s string) {
	if null(raw) || json.Unmarshal(raw, &s) != nil {
		r.fault(what, "text")
	}
	return s
}

func (r *taskReader) texts(what string, raw json.RawMessage) (all []string) {
	for _, item := range r.list(what, raw) {
		all = append(all, r.text(what, item))
	}
	return all
}

func (r *taskReader) cases(what string, raw json.RawMessage) (all []schema.Case) {
	for _, item := range r.list(what, raw) {
		c := schema.Case{}
		for _, m := range r.object(what, item) {
			v, err := schema.ParseValue(string(m.value))
			if err != nil {
				r.fault(what, "values that a payload can hold")
			}
			c = append(c, schema.Param{Name: m.name, Value: v})
		}
		all = append(all, c)
	}
	return all
}

func (r *taskReader) defines(raw json.RawMessage) (all []schema.Define) {
	for _, m := range r.object("config: defines", raw) {
		d := schema.Define{Name: m.name}
		if !null(m.value) {
			v, err := schema.ParseValue(string(m.value)) // Kernelbot keeps numbers too, which nvcc gets as text
			if err != nil {
				r.fault("config: defines", "text or null")
			}
			text := v.Text()
			d.Value = &text
		}
		all = append(all, d)
	}
	return all
}

// timeout reads a limit: Kernelbot's default when the key is absent.
func (r *taskReader) timeout(what string, raw json.RawMessage) schema.Timeout {
	switch {
	case len(raw) == 0:
		return schema.Seconds(schema.DefaultTimeout.Seconds())
	case null(raw):
		return schema.NoLimit()
	}
	var seconds float64
	r.decode(what, raw, &seconds)
	return schema.Seconds(seconds)
}
