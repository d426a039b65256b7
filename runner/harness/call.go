package harness

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// An answer is one output, and the time that it took.
type answer struct {
	layout *layout
	probes []probe

	took   time.Duration // by this process's clock
	end    time.Time     // when the flag was seen
	wait                 // for a core
	late   time.Duration // took may be too long by this, because kbrun waited
	wentOn bool          // it was to be frozen while its input came, and was not
	filled time.Duration // how long the judge took to fill the memory
}

// A valueError is an output that no check can be given.
type valueError string

func (e valueError) Error() string { return string(e) }

// A roomError asks for a larger arena for outputs.
type roomError struct {
	arena int
	bytes uint64
}

func (e roomError) Error() string { return fmt.Sprintf("the outputs need %d bytes", e.bytes) }

// A callOrder is what one call is to be.
type callOrder struct {
	mode    int
	message []byte
	strict  bool          // freeze the worker while the input is copied
	input   *input        // nil: there is nothing to copy
	probes  []probe       // places to read when it says "done", which nobody else knows
	watched []probe       // places on a device, which the judge reads then
	expect  time.Duration // of the call; 0: unknown
	limit   time.Duration // of the call
	bounds  func() bounds // of the answer

	// For inputs on a device: how long filling the memory should take (0: unknown), and
	// whether the judge releases the worker right after that. It does unless o.strict.
	expectFill    time.Duration
	judgeReleases bool
}

// call lets the worker compute once and takes the time. The worker waits for
// the release before the input is there, so that nothing can be begun early.
//
// Errors: *raisedError, valueError, roomError, errNonsense; io.EOF and errSilent
// of the worker's process; any other is the judge's or the machine's.
func (w *worker) call(ctx context.Context, o callOrder) (*answer, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w.number++
	head := binary.LittleEndian.AppendUint32([]byte{'P', byte(o.mode)}, w.number)
	awake, err := w.ask(ctx, o.limit, append(head, o.message...))
	if err != nil {
		return nil, err
	}
	if string(awake) != "W" {
		return nil, errNonsense
	}
	var frozen []int
	var stood map[string]string
	if o.strict {
		if frozen, err = w.freeze(); err != nil {
			return nil, err
		}
		stood = turns(frozen)
	}
	a := &answer{}
	o.judgeReleases = w.s.onDevice && o.input != nil && !o.strict
	if o.input != nil && !o.judgeReleases {
		if a.filled, err = w.s.fill(ctx, o.input); err != nil {
			thaw(frozen)
			return nil, err
		}
	}
	if w.watch.done.Load() == w.number { // it is up before the release
		thaw(frozen)
		return nil, errNonsense
	}
	watched := len(o.watched) > 0 || o.judgeReleases
	if watched {
		if err := w.beginWatch(ctx, o); err != nil {
			thaw(frozen)
			return nil, err
		}
	}
	a.wentOn = o.strict && w.wentOn(stood)
	done, err := w.time(a, o, frozen)
	if err != nil {
		return nil, err
	}
	if watched {
		if err := w.endWatch(ctx, o, a, done); err != nil {
			return nil, err
		}
		a.probes = slices.Concat(o.probes, o.watched)
	}
	if !done && !w.link.ready() {
		if w.left() {
			return nil, io.EOF
		}
		return nil, errSilent
	}
	raw, err := w.receive(ctx, answerLimit)
	described := time.Since(a.end)
	switch {
	case err != nil:
		return nil, err
	case !done && len(raw) > 0 && raw[0] == 'V': // says what it has, but has not raised the flag
		return nil, errNonsense
	}
	if err := w.read(a, raw, o); err != nil {
		return nil, err
	}
	if a.layout.values { // they come with the description
		a.took += described
	}
	return a, nil
}

// answerLimit is how long a worker may take to describe an output that it has
// called done.
const answerLimit = time.Minute

// time releases the worker and waits for its flag.
//
// Error: the judge's, which was to release it.
func (w *worker) time(a *answer, o callOrder, frozen []int) (done bool, err error) {
	before := w.accounts()
	ordinary := urgent()
	release := w.watch.release
	var begun time.Time
	if o.judgeReleases {
		if begun, err = w.released(o); err != nil {
			ordinary()
			return false, err
		}
	} else if o.strict {
		release.Store(w.number)
		begun = time.Now()
		syscall.Kill(w.pid, syscall.SIGCONT)
	} else {
		begun = time.Now()
		release.Store(w.number)
	}
	end, unseen, done := w.watch.wait(w.number, begun, o.expect, o.limit)
	for i := range o.probes {
		p := &o.probes[i]
		copy(p.bytes[:p.size], w.arenas[p.arena].data[p.at:])
	}
	after := w.accounts()
	passed := time.Since(end)
	ordinary()
	thaw(frozen)
	a.took, a.end = end.Sub(begun), end
	a.wait = before.waited(after)
	a.late = min(unseen, a.kbrun)
	if a.others > delayAllowed && o.strict {
		a.wait = w.settled(before, after)
		a.others = min(max(a.others-passed, 0), a.took) // part of it may be after the end
	} else {
		a.others = 0 // next to nothing, or not known
	}
	a.probes = o.probes
	return done, nil
}

// settled returns the wait between two accounts. It freezes the worker to read the exact
// time on cores.
func (w *worker) settled(before, after accounts) wait {
	frozen, err := w.freeze()
	defer thaw(frozen)
	now := w.accounts()
	if err != nil || !now.cpuKnown {
		after.cpuKnown = false
		return before.waited(after)
	}
	now.kbrun = after.kbrun
	for name, t := range now.threads {
		t.waited = max(after.threads[name].waited, before.threads[name].waited) // as of the end
		now.threads[name] = t
	}
	return before.waited(now)
}

// read looks through the worker's answer.
func (w *worker) read(a *answer, raw []byte, o callOrder) error {
	body := raw[1:]
	switch raw[0] {
	case 'V':
		if len(body) > maxTree {
			return valueError(fmt.Sprintf("custom_kernel returned values that take %d bytes, at most %d are allowed", len(body), maxTree))
		}
		layout, err := decodeTree(body, o.bounds())
		if err != nil {
			return valueError("custom_kernel returned " + err.Error())
		}
		a.layout = layout
		return nil
	case 'X':
		return raisedIn(body)
	case 'U':
		if told, err := decodeTexts(body); err == nil && len(told) == 1 {
			return valueError("custom_kernel returned " + told[0] + ", want tensors, or tuples, lists and dicts of them")
		}
	case 'T':
		if len(body) == 9 && (body[0] == arenaOutput || body[0] == arenaDeviceOutput && w.device[1] != nil) {
			return roomError{int(body[0]), binary.LittleEndian.Uint64(body[1:])}
		}
	}
	return errNonsense
}
