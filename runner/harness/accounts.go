package harness

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// accounts are the Linux kernel's figures: how long each thread ran on a core and waited
// for one.
type accounts struct {
	kbrun       time.Duration          // how long this thread has waited for a core
	firstThread string                 // id of the worker's first thread
	threads     map[string]threadTimes // at most mostThreads
	counted     bool                   // the kernel counts waits
	// The time on cores of all processes of the workers' sandbox, before the threads
	// were asked and after. cpuKnown: a control group counts it.
	cpuBefore, cpuAfter time.Duration
	cpuKnown            bool
}

// threadTimes are what a thread has had so far.
type threadTimes struct{ ran, waited time.Duration }

// mostThreads is how many of the worker's threads are asked.
const mostThreads = 64

// accounts reads the current figures. Those of a thread that runs or waits right now lack
// up to 10 ms. They are exact while the worker is frozen.
func (w *worker) accounts() (a accounts) {
	self, ok := schedstat("/proc/thread-self/schedstat")
	tasks := "/proc/" + strconv.Itoa(w.pid) + "/task"
	threads, err := os.ReadDir(tasks)
	if !ok || err != nil {
		return a
	}
	a = accounts{kbrun: self.waited, firstThread: strconv.Itoa(w.pid), threads: make(map[string]threadTimes, len(threads)), counted: true}
	a.cpuBefore, a.cpuKnown = w.s.parent.sandbox.CPU()
	for _, t := range threads[:min(len(threads), mostThreads)] {
		if threadTimes, ok := schedstat(tasks + "/" + t.Name() + "/schedstat"); ok {
			a.threads[t.Name()] = threadTimes
		}
	}
	a.cpuAfter, _ = w.s.parent.sandbox.CPU()
	return a
}

// schedstat reads a thread's line in /proc/…/schedstat: how long it has run and how
// long it has waited for a core, in nanoseconds.
func schedstat(path string) (t threadTimes, ok bool) {
	data, err := os.ReadFile(path)
	fields := bytes.Fields(data)
	if err != nil || len(fields) < 3 {
		return threadTimes{}, false
	}
	ran, err1 := strconv.ParseInt(string(fields[0]), 10, 64)
	waited, err2 := strconv.ParseInt(string(fields[1]), 10, 64)
	return threadTimes{time.Duration(ran), time.Duration(waited)}, err1 == nil && err2 == nil
}

// A wait is what the accounts say of a call.
type wait struct {
	counted bool // the kernel counts waits
	// delayed is how long kbrun and the worker's threads waited for a core, added up.
	delayed     time.Duration
	kbrun       time.Duration // kbrun's part of it
	firstWaited time.Duration // the part of the worker's first thread
	// others is how long nothing of the worker's was on a core although a thread of it
	// wanted one. cpuKnown: it is known.
	others   time.Duration
	cpuKnown bool
	// unclear is how much more of the call may be a wait: the worker's threads waited, for
	// each other or for other programs.
	unclear time.Duration
}

// waited compares the accounts before a call with those after it.
//
// cpu is the CPU time of all the worker's processes. While a thread waits for a core, the
// rest of the worker can have been on cores for at most cpu − ran. So
//
//	others = max over threads (waited − (cpu − ran))
//
// is time in which nothing of the worker's ran: a kernel that computes on cores did not
// go on meanwhile. A worker can make its threads wait for each other, but then one of
// them runs, and nothing is gained.
func (before accounts) waited(after accounts) (w wait) {
	w.counted = before.counted && after.counted
	if !w.counted {
		return w
	}
	w.cpuKnown = before.cpuKnown && after.cpuKnown
	var threads time.Duration
	for name, now := range after.threads {
		earlier := before.threads[name]
		waited, ran := now.waited-earlier.waited, now.ran-earlier.ran
		threads += waited
		if name == after.firstThread {
			w.firstWaited = waited
		}
		if w.cpuKnown {
			rest := max(after.cpuBefore-before.cpuAfter-ran, 0)
			w.others = max(w.others, waited-rest)
			w.unclear = max(w.unclear, min(waited, rest))
		}
	}
	w.kbrun = after.kbrun - before.kbrun
	w.delayed = threads + w.kbrun
	if !w.cpuKnown {
		w.unclear = threads
	}
	return w
}

// waitForOthers is how long others kept the worker from a core. If the control group
// cannot tell, it is how long the worker's first thread waited for any reason.
func (w wait) waitForOthers() time.Duration {
	if w.cpuKnown {
		return w.others
	}
	return w.firstWaited
}

// urgent gives this thread priority over ordinary ones, if the machine allows that, so
// that kbrun sees the worker's flag at once. The function that it returns ends that.
func urgent() (ordinary func()) {
	earlier, err := unix.SchedGetAttr(0, 0)
	if err != nil || unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}, 0) != nil {
		return func() {}
	}
	return func() { unix.SchedSetAttr(0, earlier, 0) }
}
