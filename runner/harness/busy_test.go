package harness

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

// kernelText is a kernel that is on a core for as long as its input says: long for one
// input in two, short for the rest. begin runs when it is loaded, slow before a long
// call's work and fast before a short one's.
func kernelText(long, short time.Duration, begin, slow, fast string) string {
	return preamble + fmt.Sprintf(`
import hashlib
import threading

clock = time.thread_time_ns


def work(ns):
    end = clock() + ns
    while clock() < end:
        pass


%s


def custom_kernel(data):
    a, b = data
    if a[0] > 0:
        %s
        work(%d)
    else:
        %s
        work(%d)
    return array("f", map(float.__add__, a, b))
`, begin, slow, long.Nanoseconds(), fast, short.Nanoseconds())
}

// load keeps n loops computing while the test runs.
func load(t *testing.T, n int) {
	for range n {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		if err := loop.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { loop.Process.Kill(); loop.Wait() })
	}
}

// crowds are threads or processes of the submission that keep core 0 busy during its long
// calls. The kernel runs on core 0 then, too, and has to wait for them.
func crowds(t *testing.T) map[string]string {
	_, threads, _ := strings.Cut(fileText(t, corpus, "usual/programs/crowd_threads.py"), "from channel import *\n")
	threads, _, found := strings.Cut(threads, "def custom_kernel")
	if !found {
		t.Fatal("crowd_threads.py has no kernel behind its threads")
	}
	return map[string]string{"threads": threads, "processes": `
import mmap
shared = mmap.mmap(-1, 4096)


class crowd:
    def set():
        shared[0] = 1

    def clear():
        shared[0] = 0


for _ in range(4):
    if os.fork() == 0:
        os.sched_setaffinity(0, {0})
        while True:
            if not shared[0]:
                time.sleep(0.0005)
`}
}

// A figure is what the work is on average, on a busy machine and for inputs of unequal
// cost, and no submission makes it less by crowding its long calls.
func TestSlowBusyMachines(t *testing.T) {
	testenv.NeedSlow(t)
	const long, short = 10 * time.Millisecond, 200 * time.Microsecond
	const slow, fast = "crowd.set(); os.sched_setaffinity(0, {0})", "crowd.clear(); os.sched_setaffinity(0, {0, 1})"
	honest := func(long, short time.Duration) string { return kernelText(long, short, "", "pass", "pass") }
	type kernel struct {
		name, text string
		mean       time.Duration
		hostile    bool // takes longer than its work
	}
	kernels := []kernel{
		{"unequal", honest(long, short), (long + short) / 2, false},
		{"2 ms", honest(2*time.Millisecond, 2*time.Millisecond), 2 * time.Millisecond, false},
		{"0.2 ms", honest(short, short), short, false},
	}
	for name, text := range crowds(t) {
		kernels = append(kernels, kernel{name, kernelText(long, short, text, slow, fast), (long + short) / 2, true})
	}
	for _, n := range []int{0, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			p := addPayload(right, ints("n", 64, "seed", 1))
			p.BenchmarkTimeout = schema.Seconds(40)
			s := mustOpen(t, "", p)
			load(t, n)
			ambiguous := 0
			_, accounted := s.parent.sandbox.CPU()
			for _, k := range kernels {
				if k.hostile && !accounted {
					t.Logf("%s: NOT RUN: without a control group nothing tells whom a worker waits for", k.name)
					continue
				}
				begun := time.Now()
				r := phase(t, s, schema.ModeBenchmark, k.text, p)
				if r.outcome == schema.OutcomeAmbiguous {
					t.Logf("%s: %s, %s", k.name, r.text, time.Since(begun))
					if !k.hostile {
						ambiguous++
					}
					continue
				}
				r.want(t, schema.OutcomePassed, "")
				m := r.Measurements[0]
				mean := (m.Interval[0] + m.Interval[1]) / 2
				t.Logf("%s: %.3f ms, interval %.3f to %.3f, strict %.3f, %d samples, %d left out, %s",
					k.name, mean/1e6, m.Interval[0]/1e6, m.Interval[1]/1e6, *m.Strict/1e6, len(m.Samples), m.LeftOut, time.Since(begun))
				half := m.Interval[1] - mean
				if want := float64(k.mean); mean+2*half < want || !k.hostile && mean-2*half > 1.1*want+4e5 {
					t.Errorf("%s: the figure is %.3f ms, half the interval %.3f ms, the work %s", k.name, mean/1e6, half/1e6, k.mean)
				}
			}
			if accounted && ambiguous > 1 {
				t.Errorf("%d honest runs are ambiguous, want at most one", ambiguous)
			}
		})
	}
}
