package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// rows is laid over the command when it is built for a measurement: a table of
// as many GPU types as a variable says.
const rows = `package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/gpu-mode/kbgen/pipelines"
)

func init() {
	n, err := strconv.Atoi(os.Getenv("KBGEN_BENCH_ROWS"))
	if err != nil {
		return
	}
	row := pipelines.Fleet[1]
	pipelines.Fleet = make(pipelines.Table, n)
	for i := range pipelines.Fleet {
		g := row
		g.Name, g.Queue = fmt.Sprintf("%s_%d", g.Name, i), fmt.Sprintf("%s-%d", g.Queue, i)
		pipelines.Fleet[i] = g
	}
}
`

// program builds a program, stripped as a release is, and copies it: a file as
// the linker leaves it starts slower than one that was installed.
func program(b *testing.B, dir, name string, args ...string) string {
	b.Helper()
	built, installed := filepath.Join(dir, name+".built"), filepath.Join(dir, name)
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", built}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("go build: %v: %s", err, out)
	}
	data, err := os.ReadFile(built)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(installed, data, 0o755); err != nil {
		b.Fatal(err)
	}
	return installed
}

// BenchmarkStart is kbgen from start to end, steps rendered and checked, beside
// a program that does nothing. Everything is built first; then all of them run
// in turn, and medians are reported: milliseconds of wall and processor time,
// the ratio of processor time to the empty program's, and how much of it goes
// into making packages ready (init).
//
// Budgets of processor time: 8, 50 and 200 ms for 1, 100 and 500 steps; 6 times the empty
// program for one.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	source := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
		return path
	}
	here, err := os.Getwd()
	if err != nil {
		b.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "rows_of_bench.go"): source("rows.go", rows)}})
	if err != nil {
		b.Fatal(err)
	}
	empty := program(b, dir, "empty", source("empty.go", "package main\n\nfunc main() {}\n"))
	kbgen := program(b, dir, "kbgen", "-overlay", source("overlay.json", string(overlay)), ".")

	one := []string{kbgen, "render", "evaluate", "--gpu", "ALL"}
	runs := []*measured{
		{name: "empty", argv: []string{empty}},
		{name: "version", argv: []string{kbgen, "--version"}},
		{name: "1", argv: one, steps: 1},
		{name: "100", argv: one, steps: 100},
		{name: "500", argv: one, steps: 500},
	}
	for _, r := range runs { // nobody is the first to read a file
		r.run(b)
		r.wall, r.cpu = nil, nil
	}
	for b.Loop() {
		for _, r := range runs {
			r.run(b)
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, r := range runs {
		b.ReportMetric(median(r.wall), r.name+"-ms")
		b.ReportMetric(median(r.cpu), r.name+"-cpu-ms")
	}
	b.ReportMetric(median(runs[2].cpu)/median(runs[0].cpu), "1-to-empty")
	b.ReportMetric(initShare(b, kbgen), "init-ms")
}

// measured is one command and how long each of its runs took, in milliseconds.
type measured struct {
	name      string
	argv      []string
	steps     int
	wall, cpu []float64
}

func (m *measured) run(b *testing.B) {
	cmd := exec.Command(m.argv[0], m.argv[1:]...)
	cmd.Env = append(os.Environ(), "KBGEN_BENCH_ROWS="+strconv.Itoa(m.steps))
	var out bytes.Buffer
	cmd.Stdout = &out
	start := time.Now()
	err := cmd.Run()
	if err != nil || bytes.Count(out.Bytes(), []byte("- key: ")) != m.steps {
		b.Fatalf("%s: %v, %d bytes", m.name, err, out.Len())
	}
	m.wall = append(m.wall, float64(time.Since(start).Microseconds())/1000)
	m.cpu = append(m.cpu, float64((cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()).Microseconds())/1000)
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// initShare is what the runtime says that packages take to get ready.
func initShare(b *testing.B, kbgen string) float64 {
	cmd := exec.Command(kbgen, "--version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	if err := cmd.Run(); err != nil {
		b.Fatal(err)
	}
	sum := 0.0
	for _, m := range regexp.MustCompile(`init \S+ @[0-9.]+ ms, ([0-9.]+) ms clock`).FindAllStringSubmatch(said.String(), -1) {
		ms, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += ms
	}
	if sum == 0 {
		b.Fatal(fmt.Errorf("the runtime says nothing of init: %q", said.String()))
	}
	return sum
}
