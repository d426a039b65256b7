package harness

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// accounts are the kernel's: who was on a core for how long, and who waited for one.
type accounts struct {
	judge   time.Duration   // that this very thread has waited
	first   string          // of the worker's threads
	threads map[string]turn // at most mostThreads
	counted bool            // the kernel says how long threads wait
	// The time on cores of all processes of the workers' sandbox, before the threads
	// were asked and after. whole: the control group knows it.
	cpuBefore, cpuAfter time.Duration
	whole               bool
}

// A turn is what a thread has had so far.
type turn struct{ ran, waited time.Duration }

// mostThreads is how many of the worker's threads are asked.
const mostThreads = 64

// accounts reads them as they stand. What a thread has that is on a core or waits
// for one at this moment lacks up to 10 ms: they are exact while the worker is frozen.
func (w *worker) accounts() (a accounts) {
	own, ok := schedstat("/proc/thread-self/schedstat")
	tasks := "/proc/" + strconv.Itoa(w.pid) + "/task"
	threads, err := os.ReadDir(tasks)
	if !ok || err != nil {
		return a
	}
	a = accounts{judge: own.waited, first: strconv.Itoa(w.pid), threads: make(map[string]turn, len(threads)), counted: true}
	a.cpuBefore, a.whole = w.s.parent.sandbox.CPU()
	for _, t := range threads[:min(len(threads), mostThreads)] {
		if turn, ok := schedstat(tasks + "/" + t.Name() + "/schedstat"); ok {
			a.threads[t.Name()] = turn
		}
	}
	a.cpuAfter, _ = w.s.parent.sandbox.CPU()
	return a
}

// schedstat reads a thread's line in /proc/…/schedstat: how long it has run and how
// long it has waited for a core, in nanoseconds.
func schedstat(path string) (t turn, ok bool) {
	data, err := os.ReadFile(path)
	fields := bytes.Fields(data)
	if err != nil || len(fields) < 3 {
		return turn{}, false
	}
	ran, err1 := strconv.ParseInt(string(fields[0]), 10, 64)
	waited, err2 := strconv.ParseInt(string(fields[1]), 10, 64)
	return turn{time.Duration(ran), time.Duration(waited)}, err1 == nil && err2 == nil
}

// A wait is what the accounts say of a call.
type wait struct {
	counted bool // the kernel says anything
	// delayed is how long the judge and the worker's threads waited for a core, added up.
	delayed time.Duration
	judge   time.Duration // the judge's part of it
	first   time.Duration // the part of the worker's first thread
	// others is how long nothing of the worker's was on a core although a thread of it
	// wanted one. whole: it is known.
	others time.Duration
	whole  bool
	// unclear is how much of the call may be a wait besides: its threads waited for
	// each other or for a stranger.
	unclear time.Duration
}

// waited compares the accounts before a call with those after it.
//
// While a thread waits for a core, either another thread of the worker is on one or
// none is, and the others are on cores for as long as all are but itself, so that
//
//	others = max over threads (waited − (cpu − ran))
//
// is time in which nothing of the worker's ran: a kernel that computes on cores did not
// go on meanwhile. A worker can make its threads wait for each other, but then they
// run, and it gains nothing.
func (before accounts) waited(after accounts) (w wait) {
	w.counted = before.counted && after.counted
	if !w.counted {
		return w
	}
	w.whole = before.whole && after.whole
	var threads time.Duration
	for name, now := range after.threads {
		was := before.threads[name]
		waited, ran := now.waited-was.waited, now.ran-was.ran
		threads += waited
		if name == after.first {
			w.first = waited
		}
		if w.whole {
			own := max(after.cpuBefore-before.cpuAfter-ran, 0)
			w.others = max(w.others, waited-own)
			w.unclear = max(w.unclear, min(waited, own))
		}
	}
	w.judge = after.judge - before.judge
	w.delayed = threads + w.judge
	if !w.whole {
		w.unclear = threads
	}
	return w
}

// stranger is how long others than the worker kept its first thread from a core, or may
// have.
func (w wait) stranger() time.Duration {
	if w.whole {
		return w.others
	}
	return w.first
}

// urgent lets this very thread run before all ordinary ones, where the machine allows
// that, until the function that it returns is called: the judge sees the worker's flag
// at once however busy the machine is.
func urgent() (ordinary func()) {
	was, err := unix.SchedGetAttr(0, 0)
	if err != nil || unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}, 0) != nil {
		return func() {}
	}
	return func() { unix.SchedSetAttr(0, was, 0) }
}
