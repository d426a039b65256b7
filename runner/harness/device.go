package harness

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Memory on a device is the judge's, made by its torch and opened by the worker's.
// It is never given back to the judge's allocator while a worker may have it
// open, and lasts for all phases.
type deviceMemory struct {
	size   uint64
	shared []byte     // what it is opened with: a list of texts
	files  []*os.File // of a stand-in
}

// A standIn is memory that takes the place of a GPU's where there is none.
type standIn struct {
	source string // Python: a class Device instead of device.py's
	tools  string // Python: what takes the place of proofTools
	memory func(size int) (*os.File, error)
}

const (
	// deviceUnit is what sizes on a device are multiples of, and deviceLeast the
	// least: from there on torch's allocator makes segments of exactly that size.
	deviceUnit, deviceLeast = 2 << 20, 32 << 20
	// gatherLimit is how long the judge may take to see a flag that is there.
	gatherLimit = time.Minute
)

// size is that of an arena of the worker's, 0 when it has none.
func (w *worker) size(arena int) uint64 {
	if arena < arenaDevice {
		return uint64(w.arenas[arena].size())
	}
	if m := w.device[arena-arenaDevice]; m != nil {
		return m.size
	}
	return 0
}

// bounds is what an answer of the worker's may refer to.
func (w *worker) bounds(logical uint64) bounds {
	return bounds{
		sizes: [2]uint64{w.size(arenaInput), w.size(arenaOutput)}, logical: logical,
		device: [2]uint64{w.size(arenaDeviceInput), w.size(arenaDeviceOutput)}, filled: w.s.native(),
	}
}

// growFor makes room for an input.
//
// Error: *[TaskError] when it is on a device and the first one was not.
func (w *worker) growFor(ctx context.Context, in *input) error {
	if err := w.grow(ctx, arenaInput, in.size); err != nil || in.onDevice == 0 {
		return err
	}
	if !w.s.onDevice {
		return &TaskError{"a case has tensors on a GPU, and the first one has none"}
	}
	return w.grow(ctx, arenaDeviceInput, in.onDevice)
}

// openDevice gives a new worker the memory on the device, emptied: nothing that
// an earlier worker left there reaches it. The judge gets the page with the flags, and
// one that the worker does not have.
func (w *worker) openDevice(ctx context.Context) (err error) {
	if w.judgePage, err = newMemory("judge-page", pageSize); err != nil {
		return err
	}
	if _, err := w.s.askJudge(ctx, askLimit, map[string]any{"op": "page"}, nil, w.page.file, w.judgePage.file); err != nil {
		return err
	}
	if _, err := w.s.askJudge(ctx, askLimit, map[string]any{"op": "wipe"}, nil); err != nil {
		return err
	}
	for i := range w.device {
		if err := w.growDevice(ctx, arenaDevice+i, 0); err != nil {
			return err
		}
	}
	return nil
}

// growDevice is grow for an arena on the device.
//
// Error: *[UnsupportedError] when the judge cannot make or share it.
func (w *worker) growDevice(ctx context.Context, arena int, size uint64) error {
	at := arena - arenaDevice
	have := w.s.device[at]
	if have == nil || have.size < size {
		var err error
		if have, err = w.s.makeDevice(ctx, arena, size); err != nil {
			return err
		}
	}
	if w.device[at] == have {
		return nil
	}
	message := binary.LittleEndian.AppendUint64([]byte{'D', byte(arena)}, have.size)
	if err := w.order(ctx, askLimit, append(message, have.shared...), have.files...); err != nil {
		return err
	}
	w.device[at] = have
	return nil
}

// makeDevice has the judge make an arena on the device, at least twice as large
// as the last one, which it keeps.
func (s *Session) makeDevice(ctx context.Context, arena int, size uint64) (*deviceMemory, error) {
	at := arena - arenaDevice
	if s.device[at] != nil {
		size = max(size, 2*s.device[at].size)
	}
	size = (max(size, deviceLeast) + deviceUnit - 1) / deviceUnit * deviceUnit
	m := &deviceMemory{size: size}
	if s.o.standIn.memory != nil {
		file, err := s.o.standIn.memory(int(size))
		if err != nil {
			return nil, err
		}
		m.files = []*os.File{file}
	}
	answer, err := s.askJudge(ctx, askLimit, map[string]any{"op": "device", "index": arena, "size": size}, nil, m.files...)
	if err != nil {
		return nil, err
	}
	if _, err := decodeTexts(answer); err != nil {
		return nil, &brokenError{"judge", "says nothing of use"}
	}
	m.shared = bytes.Clone(answer)
	s.device[at] = m
	return m, nil
}

// trialPhase is the name of the worker that tries the device; it gets no
// submission.
const trialPhase = "device-trial"

// tryDevice finds out whether what the judge writes on the device is what a
// worker reads, and the other way round, before there is a submission.
//
// Error: *[UnsupportedError] with the reason when it is not.
func (s *Session) tryDevice(ctx context.Context) error {
	w, err := s.startWorker(ctx, &plan.Phase{Name: trialPhase})
	if err == nil {
		err = errors.Join(w.tryDevice(ctx), w.end(ctx))
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	why := err.Error()
	if cannot, ok := errors.AsType[*UnsupportedError](err); ok {
		why = cannot.What
	}
	return &UnsupportedError{What: "memory on the GPU cannot be shared: " + text.Line(why, 500), Machine: true}
}

// tryDevice exchanges patterns at both ends of both arenas.
func (w *worker) tryDevice(ctx context.Context) error {
	for i, m := range w.device {
		for _, at := range []uint64{0, m.size - trialBytes} {
			for _, judgeWrites := range []bool{true, false} {
				if err := w.exchange(ctx, arenaDevice+i, at, judgeWrites); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

const trialBytes = 64

// exchange has one side write a pattern and the other read it.
func (w *worker) exchange(ctx context.Context, arena int, at uint64, judgeWrites bool) error {
	pattern := make([]byte, trialBytes)
	rand.Read(pattern)
	place := binary.LittleEndian.AppendUint64([]byte{byte(arena)}, at)
	var got []byte
	if judgeWrites {
		order := map[string]any{"op": "write", "index": arena, "at": at, "bytes": hex.EncodeToString(pattern)}
		if _, err := w.s.askJudge(ctx, askLimit, order, nil); err != nil {
			return err
		}
		answer, err := w.ask(ctx, askLimit, binary.LittleEndian.AppendUint64(append([]byte("r"), place...), trialBytes))
		if err != nil {
			return err
		}
		if answer[0] == 'X' {
			return raisedIn(answer[1:])
		}
		got = answer[1:]
	} else {
		if err := w.order(ctx, askLimit, append(append([]byte("w"), place...), pattern...)); err != nil {
			return err
		}
		answer, err := w.s.askJudge(ctx, askLimit, map[string]any{"op": "read", "index": arena, "at": at, "count": trialBytes}, nil)
		if err != nil {
			return err
		}
		got = answer
	}
	if !bytes.Equal(got, pattern) {
		who := "the worker"
		if !judgeWrites {
			who = "the judge"
		}
		return fmt.Errorf("%s does not see what was written", who)
	}
	return nil
}

// Words of the page that kbrun and the judge share, by their lines.
const (
	lineReady    = 0 // kbrun looks: the judge may fill the memory and release the worker
	lineReleased = 1
)

// released has the judge fill the memory on the device and release the worker at once,
// and returns the time of the release by the judge's clock. If kbrun released the worker,
// work queued on the device could begin before the release, unnoticed.
//
// Error: the judge's.
func (w *worker) released(o callOrder) (begun time.Time, err error) {
	watch := stopwatch{done: w.judgePage.flag(lineReleased), gone: w.s.judge.link.ready, patient: runtime.NumCPU() < 3}
	w.judgePage.flag(lineReady).Store(w.number)
	seen, _, ok := watch.wait(w.number, time.Now(), o.expectFill, askLimit)
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return seen, err
	}
	if !ok {
		return seen, &brokenError{"judge", "cannot fill the memory on the GPU"}
	}
	at := w.judgePage.data[64*lineReleased:]
	nanoseconds := int64(binary.LittleEndian.Uint32(at[4:]))<<32 | int64(binary.LittleEndian.Uint32(at[8:]))
	return time.Now().Add(-time.Duration(now.Nano() - nanoseconds)), nil
}

// timedFill is what the judge says of a fill: how long it took.
func timedFill(answer []byte) (time.Duration, error) {
	if len(answer) != 8 {
		return 0, &brokenError{"judge", "says nothing of use"}
	}
	return time.Duration(binary.LittleEndian.Uint64(answer)), nil
}

// timeFills finds out how long filling the memory with a case's input takes while the
// device has nothing else to do: before there is a submission.
func (r *phaseRun) timeFills(ctx context.Context) error {
	r.fills = make(map[string]time.Duration, len(r.cases))
	for _, c := range r.cases {
		in, err := r.s.makeInput(ctx, c.fresh(random))
		if err == nil {
			err = r.w.growFor(ctx, in)
		}
		var took []time.Duration
		for n := 0; n < coldFills+fills && err == nil; n++ {
			var d time.Duration
			if d, err = r.s.fill(ctx, in); n >= coldFills {
				took = append(took, d)
			}
		}
		if err != nil {
			return err
		}
		r.fills[c.spec] = percentile(took, 50)
		if err := r.s.drop(ctx, in); err != nil {
			return err
		}
	}
	_, err := r.s.askJudge(ctx, askLimit, map[string]any{"op": "wipe"}, nil)
	return err
}

// How many fills of a case are timed, and how many come before.
const fills, coldFills = 15, 3

// beginWatch has the judge wait for the worker's flag, so that it reads the
// watched places as soon as the flag is there. If o.judgeReleases is set, the judge first
// fills the memory and releases the worker.
func (w *worker) beginWatch(ctx context.Context, o callOrder) error {
	places := make([][3]uint64, len(o.watched))
	for i, p := range o.watched {
		places[i] = [3]uint64{uint64(p.arena), p.at, uint64(p.size)}
	}
	order := map[string]any{"op": "watch", "sequence": w.number, "places": places, "expect": o.expect.Seconds(), "fill": nil}
	if o.judgeReleases {
		order["fill"] = o.input.id
	}
	answer, err := w.s.judge.ask(ctx, askLimit, order, nil)
	switch {
	case err != nil:
		return err
	case string(answer) != "B":
		return &brokenError{"judge", "cannot watch the memory on the GPU"}
	case w.watch.done.Load() == w.number: // before the release
		return errors.Join(errNonsense, w.stopWatch(ctx))
	}
	return nil
}

// endWatch enters what the judge has read. done: the flag was seen here.
//
// Error: errNonsense when the worker has taken its flag back.
func (w *worker) endWatch(ctx context.Context, o callOrder, a *answer, done bool) error {
	judge := w.s.judge
	if done {
		answer, _, err := judge.link.receive(ctx, gatherLimit)
		switch {
		case errors.Is(err, errSilent):
			if w.watch.done.Load() != w.number {
				return errors.Join(errNonsense, w.stopWatch(ctx))
			}
			return judge.broke(err)
		case err != nil:
			return judge.broke(err)
		}
		filled, err := enter(answer, o.watched)
		if o.judgeReleases {
			a.filled = filled
		}
		return err
	}
	return w.stopWatch(ctx)
}

// enter puts what the judge has read into the probes, arena by arena as
// the judge has gathered them. It returns how long the fill took.
func enter(answer []byte, watched []probe) (filled time.Duration, err error) {
	all := 0
	for _, p := range watched {
		all += p.size
	}
	if answer[0] != 'G' || len(answer) != 9+all {
		return 0, &brokenError{"judge", "cannot read the memory on the GPU"}
	}
	filled, _ = timedFill(answer[1:9])
	answer = answer[9:]
	for i := range watched {
		p := &watched[i]
		answer = answer[copy(p.bytes[:p.size], answer):]
	}
	return filled, nil
}

// stopWatch ends a watch whose flag does not come. The judge answers the watch,
// then the order to stop.
func (w *worker) stopWatch(ctx context.Context) error {
	judge := w.s.judge
	answer, err := judge.ask(ctx, askLimit, map[string]any{"op": "stop"}, nil)
	if err != nil {
		return err
	}
	if answer[0] != 'S' {
		answer, _, err = judge.link.receive(ctx, askLimit)
	}
	if err != nil {
		return judge.broke(err)
	}
	if answer[0] != 'S' {
		return &brokenError{"judge", "says nothing of use"}
	}
	return nil
}
