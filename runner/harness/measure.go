package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

const (
	// minRuns is the least number of counted calls that make a figure, and of
	// strict ones that make the other.
	minRuns, minStrict = 3, 3
	// evidence is how many calls of both kinds there must be before a small spread ends the
	// case: three inputs may cost the same by chance, and one long call among three strict
	// ones hides that the others are longer, too.
	evidence = 10
	// After mostRuns calls the task's wish for evidence no longer prolongs a case, because
	// result.json lists every call.
	mostRuns = 10_000
	// strictOneIn: one call in five, chosen at random, is strict. The worker is frozen
	// while its input is copied in, so that it cannot begin before the clock starts. A
	// strict call costs a thaw, so not all are strict. See peeked.
	strictOneIn = 5
	// warmUps are calls that are checked and not counted.
	warmUps = 2

	// checkAlways is the size of outputs that are checked at every call, in
	// bytes; of larger ones a secret checkOneIn-th is.
	checkAlways, checkOneIn = 1 << 20, 4

	// echoes and strictEchoes are how many empty calls tell what a hand-over
	// takes. After calibrateFor on a busy machine fewEchoes are enough, and after
	// calibrateMost it is too busy without them.
	echoes, strictEchoes, fewEchoes = 40, 10, 10
	calibrateFor, calibrateMost     = 5 * time.Second, 30 * time.Second

	// roughSpread is what a thaw may take where none could be seen.
	roughSpread = 200 * time.Microsecond

	// busyRuns are enough after busyAfter if most calls have to wait for a core. A busy
	// machine needs as many strict calls.
	busyRuns, busyAfter = 15, 15 * time.Second
	// If more than one call in busyPart is left out, strict calls make the figure,
	// provided it is longer than coldTimes * busyCold. busyCold is how much longer a call
	// may take after a thaw while others use the caches (measured: up to 250 µs beside ten
	// busy loops).
	busyPart, busyCold, coldTimes = 10, 400 * time.Microsecond, 5
	// The machine was quiet if others had at most one part in quietPart of the strict
	// calls' time. At most one part in doubtPart of a figure may be a wait.
	quietPart, doubtPart = 100, 20

	// memoryLimit is what kbrun may hold before a collection is worth its time.
	memoryLimit = 32 << 20

	// A call that is not strict is left out if its two sides waited for a core for
	// longer than
	//
	//	max(delayAllowed, shortest call / delayPart)
	//
	// in the kernel's accounts (schedstat). Such a call shows the machine's load and
	// not the kernel's time. The bound follows the shortest call, because a delay of 2 %
	// does not change a ranking, and not the call itself, because a delayed call is long.
	// Long calls are left out more often than short ones, and a worker can make its
	// threads wait. So no strict call is left out if the accounts say how long others
	// kept it from a core, and the two kinds are compared.
	delayAllowed, delayPart = 60 * time.Microsecond, 50

	// maxProbes is how many places of an output are read when it is called done.
	maxProbes = 256

	// minOutput bounds a case's outputs, in bytes, and outputFactor times its
	// inputs; the larger counts.
	minOutput, outputFactor = 64 << 20, 8
)

// An ambiguousError says that the machine was too busy.
type ambiguousError struct {
	counted, leftOut, least int
	longer                  bool    // those left out took longer
	lacks                   string  // what the task wants that the figure does not have
	doubt                   float64 // the part of the calls' time that may be a wait, where that is too much
}

func (e *ambiguousError) Error() string {
	if e.longer {
		return fmt.Sprintf("%d calls had to wait for a core, and took longer without that than the %d calls that did not", e.leftOut, e.counted)
	}
	if e.lacks != "" {
		return e.lacks
	}
	if e.doubt > 0 {
		return fmt.Sprintf("%.0f %% of the calls' time may be a wait for a core that other programs caused", 100*e.doubt)
	}
	return fmt.Sprintf("%d calls count, want at least %d; %d were left out because they had to wait for a core", e.counted, e.least, e.leftOut)
}

// emptyTree is the message of an empty tuple.
func emptyTree() []byte { return []byte{0, 0, kindTuple, 0, 0, 0, 0} }

// left is how much of the phase's time is left.
func (r *phaseRun) left() time.Duration {
	if r.deadline.IsZero() {
		return 365 * 24 * time.Hour
	}
	return time.Until(r.deadline)
}

// An attempt is one call on one input, checked.
type attempt struct {
	*answer
	note  string // what the check says of a right answer
	moved bool   // the output has another layout than the last one
	size  uint64 // of the input, in bytes
}

// try makes an input, or several for one call, calls the kernel and has the output
// checked.
//
// Errors: caseError; those of worker.call; the judge's.
func (r *phaseRun) try(ctx context.Context, strict, look bool, expect time.Duration, cases ...testCase) (attempt, error) {
	begun := time.Now()
	in, err := r.s.makeInput(ctx, cases...)
	r.judged += time.Since(begun)
	if err != nil {
		return attempt{}, err
	}
	if err := r.w.growFor(ctx, in); err != nil {
		return attempt{}, err
	}
	// Most outputs are no larger than their inputs, and need no second call.
	if err := r.w.grow(ctx, arenaOutput, min(in.size, minOutput)); err != nil {
		return attempt{}, err
	}
	a, err := r.callOn(ctx, in, strict, expect)
	if value, ok := errors.AsType[valueError](err); ok {
		return attempt{}, errors.Join(caseError(value), r.s.drop(ctx, in))
	}
	if err != nil {
		return attempt{}, err
	}
	if n := len(a.layout.extents); n > maxProbes*len(cases) { // some would have no place that is read in time
		return attempt{}, errors.Join(caseError(fmt.Sprintf("custom_kernel returned %d arrays, at most %d are allowed", n, maxProbes)), r.s.drop(ctx, in))
	}
	moved := r.outputs == nil || !a.layout.equal(r.outputs)
	r.outputs = a.layout
	var size uint64
	for _, e := range a.layout.extents { // what its storages claim besides is not looked at
		size += e.count * e.item
	}
	if moved {
		a.probes = nil // they were places of another layout
	}
	begun = time.Now()
	f, err := r.s.check(ctx, in, a, look || size <= checkAlways)
	r.judged += time.Since(begun)
	switch {
	case err != nil:
		return attempt{}, err
	case f.late > 0:
		return attempt{}, &lateError{f.late, len(a.probes)}
	case f.raised:
		return attempt{}, caseError("the output cannot be checked: " + f.text)
	case !f.good:
		words := f.text
		if words == "" {
			words = "the check failed"
		}
		return attempt{}, caseError(words)
	}
	return attempt{a, f.text, moved, in.size + in.onDevice}, nil
}

// A lateError is an output that changed after it was called done.
type lateError struct{ words, of int }

func (e *lateError) Error() string {
	return fmt.Sprintf("the output was called done and written afterwards: %d of %d places changed", e.words, e.of)
}

// callOn calls the kernel on an input. If the outputs need more room, it makes room and
// calls again. If the call counts, it returns a valueError instead.
func (r *phaseRun) callOn(ctx context.Context, in *input, strict bool, expect time.Duration) (*answer, error) {
	limit := max(uint64(minOutput), outputFactor*(in.size+in.onDevice))
	for {
		probes, watched := r.probes()
		mode := modeCall
		switch {
		case r.p.Profile != nil: // by another name, which a profiler around it looks for, or looked at from within
			mode = cmp.Or(map[string]int{plan.ProfilerTorch: modeTorch, plan.ProfilerPython: modePython}[r.p.Profile.Profiler], modeRange)
		case len(in.batch) > 1:
			mode = modeBatch
		}
		o := callOrder{
			mode: mode, message: in.message, strict: strict, expect: expect, limit: max(r.left(), 0), probes: probes, watched: watched,
			input: in, expectFill: r.fill, bounds: func() bounds { return r.w.bounds(limit) },
		}
		a, err := r.w.call(ctx, o)
		room, full := errors.AsType[roomError](err)
		if !full {
			return a, err
		}
		if room.bytes > limit || room.bytes <= r.w.size(room.arena) {
			return nil, valueError(fmt.Sprintf("custom_kernel returned %d bytes, at most %d are allowed", room.bytes, limit))
		}
		if r.counted { // the call was made, and its time is lost
			return nil, valueError("custom_kernel returned more than in the calls before")
		}
		// A quarter more for inputs to come, and so much that it does not happen often.
		if err := r.w.grow(ctx, room.arena, min(limit, max(room.bytes+room.bytes/4, 2*r.w.size(room.arena)))); err != nil {
			return nil, err
		}
	}
}

// probes are secret places of the output, if it lies where the last one lay, and
// those of them on a device; a small output is read as a whole. They are places of
// elements: what a storage has besides may be never written. Each array has its share,
// so that large ones that no check looks at do not hide a small one.
func (r *phaseRun) probes() (probes, watched []probe) {
	if r.outputs == nil {
		return nil, nil
	}
	extents := r.outputs.extents
	add := func(e *extent, element uint64) {
		at := e.at(element)
		p := probe{arena: e.arena, at: at, size: int(min(max(8, e.item), e.end-at))}
		if e.arena >= arenaDevice {
			watched = append(watched, p)
		} else {
			probes = append(probes, p)
		}
	}
	// The judge reads arena by arena.
	defer func() { slices.SortStableFunc(watched, func(a, b probe) int { return a.arena - b.arena }) }()
	var total uint64
	for _, e := range extents {
		total += e.count // the bounds of a message keep the sum small
	}
	if total <= maxProbes {
		for i := range extents {
			for n := range extents[i].count {
				add(&extents[i], n)
			}
		}
		return probes, watched
	}
	for i := range maxProbes {
		e := &extents[i%len(extents)]
		if len(extents) > maxProbes {
			e = &extents[random(int64(len(extents)))]
		}
		add(e, uint64(random(int64(e.count))))
	}
	return probes, watched
}

// attemptTwice is a test: the case as it is, then with inputs that a submission
// cannot have made beforehand from the case's seed.
func (r *phaseRun) attemptTwice(ctx context.Context, c testCase) (note string, err error) {
	r.outputs = nil
	first, err := r.try(ctx, false, true, 0, c)
	if err != nil {
		return "", r.lateIsForged(err)
	}
	if _, seed := c.seed(); seed == nil {
		return first.note, nil
	}
	_, err = r.try(ctx, false, true, 0, c.fresh(random))
	if wrong, ok := errors.AsType[caseError](err); ok {
		return "", caseError(string(wrong) + " (with a fresh seed)")
	}
	return first.note, r.lateIsForged(err)
}

// lateIsForged turns a late output into a failed case and the phase's outcome.
func (r *phaseRun) lateIsForged(err error) error {
	late, ok := errors.AsType[*lateError](err)
	if !ok {
		return err
	}
	r.outcome(schema.OutcomeForged, "%s %d: %s", r.kind(), r.current, late)
	return caseError(late.Error())
}

// measure times one case. left is how many cases there are still to do, this one
// among them.
//
// Errors: caseError, *ambiguousError, and those of try.
func (r *phaseRun) measure(ctx context.Context, c testCase, left int) (stats, error) {
	// No collection while the clock runs, unless there is much to collect.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryLimit))
	r.outputs, r.fill, r.counted = nil, r.fills[c.spec], false
	if _, err := r.try(ctx, false, true, 0, c); err != nil { // as it is, whatever it takes
		return stats{}, r.lateIsForged(err)
	}
	m := measuring{r: r, sampling: r.s.rules.sampling(r.p.Mode)}
	m.most = min(wallLimit, r.left()*4/5/time.Duration(left))
	m.wall = min(m.sampling.wall, m.most)
	if err := m.run(ctx, c); err != nil {
		return stats{}, r.lateIsForged(err)
	}
	r.counted = false
	if err := m.batches(ctx, c); err != nil {
		return stats{}, r.lateIsForged(err)
	}
	return m.finish()
}

// A measuring is one case while it is timed.
type measuring struct {
	r        *phaseRun
	sampling sampling
	wall     time.Duration // after which it is enough if there are figures
	most     time.Duration // after which it is over

	fast, strict []float64 // counted calls less the floor, in nanoseconds
	// The same of calls whose output lay elsewhere than before, so that it was not
	// looked at when it was called done. See withMoved.
	movedFast, movedStrict []float64
	sum                    float64 // of all counted
	leftOut                int
	leftLeast              time.Duration // that the calls left out took at least, added up
	wentOn                 int           // strict calls that were not, which count for nothing
	waits                  [2]waits      // of other calls that waited for own threads; of all strict ones
	inputSize              uint64
	batched                batched
	shortest               time.Duration // call so far
}

func (m *measuring) run(ctx context.Context, c testCase) error {
	begun := time.Now()
	for n := 0; ; n++ {
		strict := n >= warmUps && m.strictNext(time.Since(begun))
		m.r.counted = n >= warmUps
		a, err := m.r.try(ctx, strict, n < warmUps || random(checkOneIn) == 0, m.shortest, c.fresh(random))
		if err != nil {
			return err
		}
		if n < warmUps {
			continue
		}
		m.inputSize = a.size
		if err := m.count(a, strict); err != nil {
			return err
		}
		if m.enough(time.Since(begun)) {
			return nil
		}
		if n%8 == 7 {
			runtime.GC() // between two calls
		}
	}
}

// strictNext decides whether the next call is strict: one in strictOneIn at random, one
// in two on a busy machine. If strict calls are still missing when half of the time has
// passed, or when there are enough others, every call is strict.
func (m *measuring) strictNext(took time.Duration) bool {
	oneIn := int64(strictOneIn)
	if m.busy() && m.accounted() {
		oneIn = 2
	}
	late := len(m.fast) >= m.sampling.repeats || took > m.wall/2 && len(m.fast) >= minRuns
	owed := len(m.strict) < m.leastStrict() && late || len(m.strict) < evidence && m.exact(m.fast)
	return owed || random(oneIn) == 0
}

// count enters one call. It leaves out a call that is not strict if it had to wait for
// others, and a strict call whose worker went on while its input came.
//
// Error: errWentOn, if most strict calls went on. A thread that is put off its core just
// when it stops seems to go on, too, but hardly ever.
func (m *measuring) count(a attempt, strict bool) error {
	waitedForSelf, forOthers := false, a.delayed
	if a.cpuKnown { // a wait for its own threads hides no call
		waitedForSelf, forOthers = a.unclear > delayAllowed, a.delayed-a.unclear
	}
	switch {
	case a.wentOn:
		if m.wentOn++; m.wentOn >= minStrict && m.wentOn > len(m.strict) {
			return errWentOn
		}
		return nil
	case (!strict || !m.accounted() || !a.cpuKnown) && a.counted && forOthers > max(delayAllowed, min(cmp.Or(m.shortest, a.took), a.took)/delayPart):
		// How long a call took that was kept waiting says nothing of how long it may wait.
		m.leftOut++
		m.leftLeast += max(a.took-a.firstWaited-a.late, 0)
		return nil
	}
	floor, subtracted := m.r.s.floor, time.Duration(0)
	if strict {
		floor, _ = m.r.strictFloor()
		if a.cpuKnown && !m.r.s.hasGPU {
			subtracted = a.others
		}
		m.waits[1].add(a.answer, subtracted)
	} else if !a.moved && !waitedForSelf && (m.shortest == 0 || a.took < m.shortest) {
		m.shortest = a.took
	}
	if waitedForSelf && !strict {
		m.waits[0].add(a.answer, 0)
	}
	// figure = max(time + early work on the device − others on the cores − floor, resolution)
	ns := float64(max(a.took+m.r.early(a)-subtracted-floor, m.r.resolution()))
	switch {
	case a.moved && strict:
		m.movedStrict = append(m.movedStrict, ns)
		return nil
	case a.moved:
		m.movedFast = append(m.movedFast, ns)
		return nil
	case strict:
		m.strict = append(m.strict, ns)
	default:
		m.fast = append(m.fast, ns)
	}
	m.sum += ns
	return nil
}

// early is how much longer filling the memory on the device took than before there was a
// submission. A device computes for one process at a time, so work that the submission
// queued there, and that began as soon as the input was there, made the fill longer.
func (r *phaseRun) early(a attempt) time.Duration {
	if r.fills == nil {
		return 0
	}
	return a.filled - r.fill
}

// waits adds up the time of several calls, and the part of it that may be a wait.
type waits struct {
	took, others, doubt time.Duration
	unknown             bool // it is not known how long others were on the cores
}

// add enters a call, from whose time subtracted was taken.
func (w *waits) add(a *answer, subtracted time.Duration) {
	w.took += a.took
	w.others += a.others
	if doubt := a.late + a.unclear + a.others - subtracted; doubt > delayAllowed {
		w.doubt += doubt
	}
	w.unknown = w.unknown || a.counted && !a.cpuKnown
}

// excess returns the part of the strict calls' time, or of the other calls' time, that
// may be a wait. It returns 0 if that is at most 1/doubtPart, or if others did not cause
// it: then it is the submission's own time. Only strict calls tell who was on the cores.
func (m *measuring) excess(strict bool) float64 {
	w, strictWaits := &m.waits[0], &m.waits[1]
	sum := 0.0
	for _, ns := range m.fast {
		sum += ns
	}
	if strict {
		w, sum = strictWaits, float64(strictWaits.took-strictWaits.others)
	}
	quiet := !strictWaits.unknown && strictWaits.others <= strictWaits.took/quietPart
	if quiet || w.doubt == 0 || float64(w.doubt) <= sum/doubtPart {
		return 0
	}
	return min(float64(w.doubt)/max(sum, 1), 1)
}

// busy reports whether so many calls were left out that the rest may not be typical.
func (m *measuring) busy() bool { return m.leftOut >= minRuns && m.leftOut*(busyPart-1) > len(m.fast) }

// accounted reports whether it is known how long others kept strict calls from a core.
// If not, those that waited are left out like others.
func (m *measuring) accounted() bool { return !m.r.s.hasGPU && !m.waits[1].unknown }

// byStrict reports whether strict calls make the figure.
func (m *measuring) byStrict() bool {
	return m.busy() && m.accounted() && figuresOf(m.strict).mean > float64(coldTimes*busyCold)
}

// leastStrict is how many strict calls there must be.
func (m *measuring) leastStrict() int {
	if m.busy() && m.accounted() {
		return busyRuns
	}
	return minStrict
}

// enough reports whether the case is done: as often as its rules want, exact
// enough, or out of time.
func (m *measuring) enough(took time.Duration) bool {
	list := m.fast
	if m.byStrict() {
		list = m.strict
	}
	if len(list) < minRuns || len(m.strict) < m.leastStrict() {
		return took > m.most // a busy machine gets more time
	}
	if want := m.wanted(); want != (schema.MinEvidence{}) && len(m.fast)+len(m.strict) < mostRuns {
		if samples, _ := m.samples(); figuresOf(samples).lacks(want) != "" {
			return took > m.most
		}
	}
	if took > m.wall {
		return true
	}
	if took > busyAfter && len(list) >= busyRuns && m.leftOut > len(m.fast) {
		return true
	}
	return len(list) >= m.sampling.repeats || m.exact(list) && len(m.strict) >= evidence || m.sum > float64(m.sampling.total)
}

// samples returns the calls that make the figure, and whether they are the strict ones:
// if the machine was busy, or if the submission peeked.
func (m *measuring) samples() (list []float64, strictOnes bool) {
	fast, strict := withMoved(m.fast, m.movedFast), withMoved(m.strict, m.movedStrict)
	_, noise := m.r.strictFloor()
	coarse := float64(noise + m.r.resolution())
	if m.busy() {
		coarse += float64(busyCold)
	}
	if m.byStrict() || peeked(fast, strict, coarse, float64(m.r.strictSpread())) {
		return strict, true
	}
	return fast, false
}

// wanted is the evidence that the task wants of a ranked figure.
func (m *measuring) wanted() schema.MinEvidence {
	if m.r.p.Mode != schema.ModeLeaderboard {
		return schema.MinEvidence{}
	}
	return m.r.s.o.Payload.Evidence
}

// exact reports whether the spread of the calls is small enough to end the case.
func (m *measuring) exact(list []float64) bool {
	s := figuresOf(list)
	return len(list) >= evidence && s.err < m.sampling.err*s.mean
}

// finish returns the figures of the calls that were released at once, or those of the
// strict calls if the submission peeked or the machine was busy. With too few strict
// calls the outcome is ambiguous. With too few others it is, too, unless the strict calls
// make the figure.
func (m *measuring) finish() (stats, error) {
	r := m.r
	if len(m.fast) < minRuns && !m.byStrict() {
		if len(m.movedFast)+len(m.movedStrict) > len(m.fast)+m.leftOut {
			return stats{}, caseError("custom_kernel returns outputs of another layout every time")
		}
		return stats{}, &ambiguousError{counted: len(m.fast), leftOut: m.leftOut, least: minRuns}
	}
	if len(m.strict) < m.leastStrict() {
		return stats{}, &ambiguousError{counted: len(m.strict), leftOut: m.leftOut, least: m.leastStrict()}
	}
	samples, byStrict := m.samples()
	s, strict := figuresOf(samples), figuresOf(withMoved(m.strict, m.movedStrict))
	measured := schema.Measurement{
		Phase: r.p.Name, Case: r.current, Samples: rounded(samples), Floor: float64(r.s.floor), Resolution: float64(r.resolution()),
		LeftOut: m.leftOut, Strict: &strict.mean, Interval: s.interval(),
	}
	if m.busy() && (!byStrict || !m.accounted()) && float64(m.leftLeast)/float64(m.leftOut) > 2*s.mean+float64(delayAllowed) {
		return stats{}, &ambiguousError{counted: len(m.fast), leftOut: m.leftOut, longer: true}
	}
	if doubt := m.excess(byStrict); doubt > 0 {
		return stats{}, &ambiguousError{doubt: doubt}
	}
	if lacks := s.lacks(m.wanted()); lacks != "" {
		return stats{}, &ambiguousError{lacks: lacks}
	}
	m.batched.enter(&measured, withMoved(m.fast, m.movedFast))
	r.run.Measurements = append(r.run.Measurements, measured)
	return s, nil
}
