package store

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/store/database"
)

// kept is what a board's row has of a task.
func kept(t *task.Task) *task.Task {
	k := *t
	k.Description, k.Templates, k.GPUs = "", nil, nil
	return &k
}

func TestATaskIsReadAsItWasKept(t *testing.T) {
	folder := os.DirFS("../examples")
	for _, name := range []string{"matmul_py", "sort_py", "vectoradd_cu", "vectoradd_py"} {
		want, err := task.Load(folder, name)
		if err != nil {
			t.Fatal(err)
		}
		column, err := taskColumn(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := taskFrom(column, extensionText(want.Extension))
		if err != nil || !reflect.DeepEqual(got, kept(want)) {
			t.Errorf("%s: taskFrom(taskColumn) = %+v, %v, want %+v", name, got, err, kept(want))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		want := oddTask(random)
		column, err := taskColumn(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := taskFrom(column, extensionText(want.Extension))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("taskFrom(%s) = %+v, %v, want %+v", column, got, err, want)
		}
		if again, err := taskColumn(got); err != nil || again != column {
			t.Fatalf("taskColumn(taskFrom) = %s, %v, want %s", again, err, column)
		}
	}
}

// oddTask has everything that a task may hold and few do.
func oddTask(r *rand.Rand) *task.Task {
	words := []string{"", "z", "a", "<&>", "\"\\\n\t", "é", "\U0001f600", "\u2028", "null", "1e400", strings.Repeat("x", 300)}
	word := func() string { return words[r.IntN(len(words))] }
	list := func() (all []string) {
		for range r.IntN(4) {
			all = append(all, word())
		}
		return all
	}
	value := func() schema.Value {
		float, _ := schema.FloatValue(math.Ldexp(r.Float64()-0.5, r.IntN(600)-300))
		big, _ := schema.ParseValue("123456789012345678901234567890")
		all := []schema.Value{{}, schema.IntValue(r.Int64() - r.Int64()), schema.BoolValue(r.IntN(2) == 0), schema.StringValue(word()), float, big}
		return append(all, schema.ListValue(all))[r.IntN(len(all)+1)]
	}
	cases := func() (all []schema.Case) {
		for range r.IntN(3) {
			c := schema.Case{}
			for _, i := range r.Perm(len(words))[:r.IntN(5)] {
				c = append(c, schema.Param{Name: words[i], Value: value()})
			}
			all = append(all, c)
		}
		return all
	}
	timeout := func() schema.Timeout {
		if r.IntN(3) == 0 {
			return schema.NoLimit()
		}
		return schema.Seconds(float64(1 + r.IntN(1000)))
	}
	t := &task.Task{Lang: schema.LangPython, Libraries: list(), Tests: cases(), Benchmarks: cases(), TestTimeout: timeout(), BenchmarkTimeout: timeout(), RankedTimeout: timeout(),
		RankingBy: schema.Rankings()[r.IntN(len(schema.Rankings()))], MultiGPU: r.IntN(2) == 0, Extension: schema.Extension{Harness: append(schema.Harnesses(), "")[r.IntN(len(schema.Harnesses())+1)]}}
	if t.Harness == schema.HarnessIsolated {
		t.Inputs, t.Evidence = append(schema.Inputs(), "")[r.IntN(3)], schema.MinEvidence{Runs: r.IntN(2) * 20, Width: float64(r.IntN(2)) / 10}
	}
	for _, i := range r.Perm(len(words))[:3] {
		t.Files = append(t.Files, task.File{Name: words[i], Text: word()})
	}
	t.Files = append(t.Files, task.File{Name: "mine", Submission: true})
	if r.IntN(2) == 0 {
		seed := r.Int64() - r.Int64()
		t.Seed = &seed
	}
	if t.Config.Main = word(); r.IntN(2) == 0 {
		t.Lang, t.Config = schema.LangCUDA, task.Config{Sources: list(), IncludeDirs: list(), CompileFlags: list()}
		for _, i := range r.Perm(len(words))[:r.IntN(5)] {
			d := schema.Define{Name: words[i]}
			if r.IntN(2) == 0 {
				text := word()
				d.Value = &text
			}
			t.Config.Defines = append(t.Config.Defines, d)
		}
	}
	return t
}

func TestATaskThatKernelbotKept(t *testing.T) {
	got, err := taskFrom(`{"lang": "cu", "files": {"a.cu": "@SUBMISSION@"}, "config": {"sources": ["a.cu"], "defines": {"N": 3, "D": null}}, "test_timeout": 12.0, "seed": null}`, schema.HarnessIsolated)
	if err != nil {
		t.Fatal(err)
	}
	three := "3"
	want := &task.Task{Lang: schema.LangCUDA, Files: []task.File{{Name: "a.cu", Submission: true}}, RankingBy: schema.RankLast, Extension: schema.Extension{Harness: schema.HarnessIsolated},
		Config:      task.Config{Sources: []string{"a.cu"}, Defines: []schema.Define{{Name: "N", Value: &three}, {Name: "D"}}},
		TestTimeout: schema.Seconds(12), BenchmarkTimeout: schema.Seconds(180), RankedTimeout: schema.Seconds(180)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("taskFrom = %+v, want %+v", got, want)
	}
	for _, column := range []string{``, `null`, `[]`, `{}`, `{"lang": 1}`, `{"lang": "py", "config": {"main": "a"}, "seed": "11223344"}`, `{"lang": "py", "config": {"main": "a"}, "tests": {}}`, `{"lang": "py", "config": {"main": "a"}, "test_timeout": "x"}`, `{"lang": "py"`} {
		if got, err := taskFrom(column, ""); err == nil || strings.Contains(err.Error(), "11223344") {
			t.Errorf("taskFrom(%s) = %+v, %v, want an error without values", column, got, err)
		}
	}
}

func TestATaskComesBackFromTheDatabase(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		var column string
		if err := s.db.Row(ctx, s.db.Read, `SELECT CAST(task AS text) FROM lb.leaderboard`).Scan(&column); err != nil {
			t.Fatal(err)
		}
		want := kept(testTask())
		for _, limit := range []*schema.Timeout{&want.TestTimeout, &want.BenchmarkTimeout, &want.RankedTimeout} {
			*limit = schema.Seconds(180)
		}
		got, err := taskFrom(column, "")
		if err != nil {
			t.Fatal(err)
		}
		if s.db.Kind == database.Postgres { // jsonb has an order of its own
			got.Files[0], got.Files[1] = got.Files[1], got.Files[0]
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("taskFrom = %+v, want %+v", got, want)
		}
	})
}
