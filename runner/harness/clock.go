package harness

import (
	"runtime"
	"slices"
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
	// patient: it leaves its core to others from the start, and sees the flag later.
	patient bool
}

// wait returns when the flag shows the number or the limit has passed. The flag may have
// been up before end, by at most unseen. wait sleeps for most of a call that is expected
// to take long, to leave the core to the submission.
func (s *stopwatch) wait(number uint32, begun time.Time, expected, limit time.Duration) (end time.Time, unseen time.Duration, ok bool) {
	if expected > time.Millisecond {
		sleep(expected * 4 / 5)
	}
	spin := max(spinAtFirst, 2*expected)
	last, before := begun, begun
	for {
		for range lookEvery {
			if s.done.Load() == number {
				end = time.Now()
				return end, end.Sub(before), true
			}
		}
		before, last = last, time.Now()
		took := last.Sub(begun)
		if took > spin || oneCore || s.patient {
			sleep(pause)
			if s.done.Load() != number && (took > limit || s.gone()) {
				end = time.Now()
				return end, end.Sub(before), s.done.Load() == number
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
