package examples

import (
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// The keys that a tester may write; free text must not make others.
var reportKey = regexp.MustCompile(
	`^(check|(test|benchmark)-count|(test|benchmark)\.\d+\.(spec|status|error)|benchmark\.\d+\.(runs|mean|std|err|best|worst))$`)

type task struct {
	Files             []struct{ Name, Source string }
	Tests, Benchmarks []yaml.Node
	Templates         map[string]string
}

func readTask(t *testing.T, e Example) task {
	t.Helper()
	text, err := fs.ReadFile(FS(), path.Join(e.Dir, "task.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var parsed task
	if err := yaml.Unmarshal(text, &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

func submission(t *testing.T, e Example, name string) string {
	t.Helper()
	file, err := e.Submission(name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(FS(), file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// startLimit is when a kbrun is taken to hang.
const startLimit = 8 * time.Minute

// expectFigures holds the figures of case n against each other.
func expectFigures(t *testing.T, report map[string]string, n string) {
	t.Helper()
	get := func(name string) float64 {
		x, err := strconv.ParseFloat(report["benchmark."+n+"."+name], 64)
		if err != nil {
			t.Errorf("benchmark.%s.%s: %v", n, name, err)
		}
		return x
	}
	runs, mean, best, worst := get("runs"), get("mean"), get("best"), get("worst")
	if runs < 3 || best <= 0 || best > mean || mean > worst {
		t.Errorf("benchmark.%s: runs %v, best %v, mean %v, worst %v", n, runs, best, mean, worst)
	}
	std, err := get("std"), get("err")
	if diff := err*err*runs - std*std; diff > 0.01*std*std+1 || -diff > 0.01*std*std+1 {
		t.Errorf("benchmark.%s: err %v, want std/sqrt(runs) = %v/sqrt(%v)", n, err, std, runs)
	}
}
