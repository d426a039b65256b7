package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/pipelines"
)

// stepsVar makes the process under measurement have a table of so many rows.
const stepsVar = "KBGEN_BENCH_STEPS"

// benchmarked is kbgen with a table of the size that its caller asks for.
func benchmarked() {
	n, err := strconv.Atoi(os.Getenv(stepsVar))
	if err != nil {
		os.Exit(3)
	}
	row := pipelines.Fleet[1]
	pipelines.Fleet = make(pipelines.Table, n)
	for i := range pipelines.Fleet {
		g := row
		g.Name, g.Queue = fmt.Sprintf("%s_%d", g.Name, i), fmt.Sprintf("%s-%d", g.Queue, i)
		pipelines.Fleet[i] = g
	}
	main()
}

// BenchmarkProcess is kbgen from start to end, steps rendered and checked: as
// many as its name says. Budgets: 10, 30 and 120 ms. The process is the test's
// own binary, which is larger than kbgen and starts later.
func BenchmarkProcess(b *testing.B) {
	for _, n := range []int{1, 100, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			least := time.Hour
			for b.Loop() {
				cmd := exec.Command("kbgen-bench", "render", "evaluate", "--gpu", "ALL")
				cmd.Env = append(os.Environ(), stepsVar+"="+strconv.Itoa(n))
				start := time.Now()
				out, err := cmd.Output()
				if err != nil || bytes.Count(out, []byte("- key: ")) != n {
					b.Fatalf("%v, %d bytes", err, len(out))
				}
				least = min(least, time.Since(start))
			}
			b.ReportMetric(float64(least.Microseconds())/1000, "ms-least")
		})
	}
}
