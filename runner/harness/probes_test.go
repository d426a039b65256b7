package harness

import (
	"slices"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// A worker clears the memory for its output just before each call. If it then finds
// anything there, it knows the places that are read when it says "done", and could write
// these alone in time.
func TestMemoryTellsNoPlaces(t *testing.T) {
	const looks = right + `
import gc

worker = next(x for x in gc.get_objects() if type(x).__name__ == "Worker")
send, compute, cleared = worker.channel.send, custom_kernel, []
empty = []  # for the first of the calls that a release begins


def clear(raw):
    if raw == b"W" and 1 in worker.arenas:
        size = worker.arenas[1].size
        worker.arenas[1].part(0, size)[:] = bytes(size)
        cleared.append(size)
        empty.append(size)
    send(raw)


worker.channel.send = clear


def custom_kernel(data):
    if empty and any(worker.arenas[1].part(0, empty.pop())):
        raise RuntimeError("places are seen")
    empty.clear()
    if len(cleared) == 3:
        print("looked", flush=True)
    return compute(data)
`
	p := addPayload(looks, ints("n", 5000, "seed", 1))
	s := mustOpen(t, "", p)
	r := timed(t, s, schema.ModeBenchmark, looks, p)
	if r.outcome != schema.OutcomeAmbiguous {
		r.want(t, schema.OutcomePassed, "")
	}
	if r.Process.Stdout.Text() != "looked\n" {
		t.Errorf("the worker printed %q: it did not look", r.Process.Stdout.Text())
	}
}

// A worker claims far more memory than its output's elements take, or returns other
// arrays beside it. Neither makes the places that are read miss the output.
func TestProbesLieInElements(t *testing.T) {
	const size = 64 << 20
	sparse := extent{arena: arenaOutput, start: 4096, end: 4096 + size, offset: 7, item: 4, count: 65536, shape: []uint64{256, 256}, strides: []uint64{65536, 3}}
	dense := extent{arena: arenaOutput, start: size + 8192, end: size + 8192 + 4000, item: 4, count: 1000, shape: []uint64{1000}, strides: []uint64{1}}
	decoy := extent{arena: arenaOutput, start: 2 * size, end: 4 * size, item: 1, count: 2 * size, shape: []uint64{2 * size}, strides: []uint64{1}}
	r := &phaseRun{outputs: &layout{extents: []extent{sparse, dense, decoy}}}
	probes, watched := r.probes()
	if len(probes) != maxProbes || len(watched) > 0 {
		t.Fatalf("%d and %d places, want %d", len(probes), len(watched), maxProbes)
	}
	in := map[uint64]int{}
	for _, p := range probes {
		var found *extent
		for _, e := range r.outputs.extents {
			if e.start <= p.at && p.at+uint64(p.size) <= e.end {
				found = &e
			}
		}
		if found == nil {
			t.Fatalf("a place at %d, of %d bytes, in no array", p.at, p.size)
		}
		in[found.start]++
		if element := (p.at-found.start)/found.item - found.offset; found.start == sparse.start &&
			((p.at-found.start)%4 != 0 || element/65536 > 255 || element%65536%3 != 0 || element%65536/3 > 255) {
			t.Errorf("a place at %d is no element's", p.at)
		}
	}
	for _, e := range r.outputs.extents {
		if in[e.start] < maxProbes/3 {
			t.Errorf("%d places of the array at %d, want a third of all", in[e.start], e.start)
		}
	}

	small := extent{arena: arenaOutput, end: 64, item: 4, count: 16, shape: []uint64{16}, strides: []uint64{1}}
	r.outputs = &layout{extents: []extent{small}}
	probes, _ = r.probes()
	for n := range uint64(16) {
		if !slices.ContainsFunc(probes, func(p probe) bool { return p.at == 4*n }) {
			t.Errorf("element %d of a small output is not read", n)
		}
	}
}

// A submission answers elsewhere whenever a call is long: the call counts.
func TestLongCallsThatMoveCount(t *testing.T) {
	counted := []float64{100, 110, 90}
	if got := withMoved(slices.Clone(counted), []float64{1, 5000, 99, 7000}); !slices.Equal(got, append(slices.Clone(counted), 5000, 7000)) {
		t.Errorf("counted %v, want the calls of 5000 and 7000 as well", got)
	}
	m := &measuring{r: &phaseRun{s: &Session{}, echo: []time.Duration{0}}}
	for n := range 10 {
		for _, moved := range []bool{false, true} {
			a := attempt{answer: &answer{took: time.Millisecond}, moved: moved}
			if moved {
				a.took = 20 * time.Millisecond
			}
			if err := m.count(a, n%2 == 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, got := range [][]float64{withMoved(m.fast, m.movedFast), withMoved(m.strict, m.movedStrict)} {
		if mean := figuresOf(got).mean; len(got) != 10 || mean < 10e6 {
			t.Errorf("%d calls of 1 ms, and of 20 ms elsewhere: %.0f ns, want about 10.5 ms of 10", len(got), mean)
		}
	}
}
