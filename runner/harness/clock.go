package harness

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// spinAtFirst is how long a call of unknown length is waited for without a
	// pause; pause is the pause then.
	spinAtFirst = 2 * time.Millisecond
	pause       = 50 * time.Microsecond
	// lookEvery is how many looks at the flag come between two at the clock.
	lookEvery = 256
)

// A stopwatch waits for the worker's flag, on a thread of its own.
type stopwatch struct {
	release, done *atomic.Uint32
	// gone is asked now and then while it waits; true ends the wait.
	gone func() bool
}

// wait returns when the flag shows the number or limit is over. A call that is
// expected to take long is slept on for most of that time: the core is the
// kernel's.
func (s *stopwatch) wait(number uint32, begun time.Time, expected, limit time.Duration) (end time.Time, ok bool) {
	if expected > time.Millisecond {
		sleep(expected * 4 / 5)
	}
	spin := max(spinAtFirst, 2*expected)
	for {
		for range lookEvery {
			if s.done.Load() == number {
				return time.Now(), true
			}
		}
		took := time.Since(begun)
		if took > spin || oneCore {
			sleep(pause)
			if s.done.Load() != number && (took > limit || s.gone()) {
				return time.Now(), s.done.Load() == number
			}
		}
	}
}

// sleep pauses this very thread. The runtime's own timers wake it by another one,
// whose wait for a core nobody would count.
func sleep(d time.Duration) {
	if oneCore { // everybody else needs this one
		time.Sleep(d)
		return
	}
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		ts := unix.NsecToTimespec(int64(left))
		// Without telling the runtime, which would give the processor to others and
		// have this thread wait for one again.
		unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
	}
}

// oneCore: the two sides of a call cannot both be running.
var oneCore = runtime.NumCPU() < 2

// mostFloor is the longest hand-over between two sockets of a machine.
const mostFloor = time.Microsecond

// nativeFloor returns the time of a hand-over there and back between two threads of
// this process, the minimum of 400,
//
//	floor = min(min(round trips), mostFloor)
//
// Every call contains one hand-over, so the floor is subtracted from every figure. No
// worker can hand over faster than two threads do that only wait for each other, so
// the minimum subtracts nothing that belongs to the kernel. On a busy machine the
// floor is capped at mostFloor, so that noise is never subtracted from a score.
func nativeFloor() (time.Duration, error) {
	page, err := newMemory("floor", pageSize)
	if err != nil {
		return 0, err
	}
	defer page.close()
	release, done := page.flag(lineRelease), page.flag(lineDone)
	const rounds = 400
	var echo sync.WaitGroup
	echo.Go(func() { // ends after the last round
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for n := uint32(1); n <= rounds; n++ {
			for looks := 0; release.Load() != n; looks++ {
				if looks > 1<<14 || oneCore {
					runtime.Gosched()
				}
			}
			done.Store(n)
		}
	})
	took := make([]time.Duration, 0, rounds)
	for n := uint32(1); n <= rounds; n++ {
		begun := time.Now()
		release.Store(n)
		for looks := 0; done.Load() != n; looks++ {
			if looks > 1<<14 || oneCore {
				runtime.Gosched()
			}
		}
		took = append(took, time.Since(begun))
	}
	echo.Wait()
	return min(slices.Min(took), mostFloor), nil
}

// percentile returns the p-th percentile of a list, which it sorts.
func percentile[T ~int64 | ~float64](list []T, p int) T {
	slices.Sort(list)
	return list[min(len(list)-1, len(list)*p/100)]
}

// starvation is which part of the time since begun a thread has waited for a
// core, 0 where the kernel does not count it. One that sleeps does not wait.
func starvation(path string, begun time.Time) float64 {
	waited, ok := schedstat(path)
	if !ok {
		return 0
	}
	return float64(waited) / float64(max(time.Since(begun), 1))
}

// runDelay is how long this thread and those of the worker have waited for a
// core so far. ok is false where the kernel does not count it.
func (w *worker) runDelay() (delay time.Duration, ok bool) {
	delay, ok = schedstat("/proc/thread-self/schedstat")
	if !ok {
		return 0, false
	}
	tasks := "/proc/" + strconv.Itoa(w.pid) + "/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return 0, false
	}
	for _, t := range threads[:min(len(threads), mostThreads)] {
		if d, ok := schedstat(tasks + "/" + t.Name() + "/schedstat"); ok {
			delay += d
		}
	}
	return delay, true
}

// mostThreads is how many of the worker's threads are asked, the oldest first.
const mostThreads = 64

// schedstat reads how long a thread has waited for a core, the second number of
// /proc/…/schedstat, in nanoseconds.
func schedstat(path string) (waited time.Duration, ok bool) {
	data, err := os.ReadFile(path)
	fields := bytes.Fields(data)
	if err != nil || len(fields) < 3 {
		return 0, false
	}
	ns, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return time.Duration(ns), err == nil
}
