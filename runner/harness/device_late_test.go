package harness

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/plan"
)

// TestTreeDevices: an array's device is that of its memory.
func TestTreeDevices(t *testing.T) {
	host := bounds{sizes: [2]uint64{64, 128}, logical: 1 << 20}
	all := host
	all.device = [2]uint64{256, 512}
	for _, c := range []struct {
		arena        int
		start, size  uint64
		kind, device byte
		b            bounds
		ok           bool
	}{
		{0, 0, 64, 1, 0, all, true}, {1, 64, 64, 1, 0, all, true}, {2, 0, 256, 1, 1, all, true}, {3, 256, 256, 1, 1, all, true},
		{0, 0, 64, 1, 1, all, false}, {1, 0, 64, 1, 1, all, false}, {2, 0, 64, 1, 0, all, false}, {3, 0, 64, 1, 0, all, false},
		{3, 0, 64, 1, 2, all, false}, {3, 0, 64, 1, 255, all, false}, {3, 0, 64, 0, 1, all, false}, {1, 0, 64, 0, 0, all, true},
		{2, 256, 4, 1, 1, all, false}, {3, 0, 516, 1, 1, all, false}, {3, math.MaxUint64, 4, 1, 1, all, false},
		{4, 0, 4, 1, 1, all, false}, {255, 0, 4, 1, 1, all, false},
		{2, 0, 4, 1, 1, host, false}, {3, 0, 0, 1, 1, host, false}, {1, 0, 0, 1, 0, host, true},
	} {
		_, err := decodeTree(floatsAt(c.arena, c.start, c.size, c.kind, c.device), c.b)
		if (err == nil) != c.ok {
			t.Errorf("arena %d, %d bytes at %d, kind %d, device %d: %v", c.arena, c.size, c.start, c.kind, c.device, err)
		}
	}
}

// floatsAt is the message of one array of float32 that fills its storage.
func floatsAt(arena int, start, size uint64, kind, device byte) []byte {
	raw := binary.LittleEndian.AppendUint16(nil, 1)
	raw = append(raw, byte(arena))
	raw = binary.LittleEndian.AppendUint64(raw, start)
	raw = binary.LittleEndian.AppendUint64(raw, size)
	code := byte(8) // float32, and float
	raw = append(raw, kindArray, kind, code, 0, device, 1)
	raw = binary.LittleEndian.AppendUint16(raw, 0)
	for _, n := range []uint64{0, size / 4, 1} {
		raw = binary.LittleEndian.AppendUint64(raw, n)
	}
	return raw
}

// TestDeviceLate: what is written after the flag is seen, place by place; the
// test itself is the worker.
func TestDeviceLate(t *testing.T) {
	p := devicePayload(2000)
	s, err := openOnDevice(t, "", p, nil)
	must(t, err)
	ctx := t.Context()
	w, err := s.startWorker(ctx, &plan.Phase{Name: trialPhase})
	must(t, err)
	defer func() { must(t, w.end(ctx)) }()
	planned := plan.New(p, plan.Machine{Root: s.o.Dir})
	cases, err := s.rules.readCases(&planned[0], p)
	must(t, err)
	outputs := s.device[1]
	memory, err := unix.Mmap(int(outputs.files[0].Fd()), 0, int(outputs.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(memory)

	const start, size = 256, 8000
	places := []probe{{arena: 3, at: start, size: 8}, {arena: 3, at: start + 4001, size: 8}, {arena: 3, at: start + size - 1, size: 1}}
	for _, changed := range [][]uint64{{}, {start}, {start + 4008}, {start + 4000, start + 4009}, {start + size - 1}, {start + 7, start + 4001, start + size - 1}} {
		in, err := s.makeInput(ctx, cases[0])
		must(t, err)
		w.number++
		o := callOrder{watched: slices.Clone(places)}
		for i := range memory[:start+size] {
			memory[i] = 0x11
		}
		must(t, w.beginWatch(ctx, o))
		if !bytes.Equal(memory[:start+size], bytes.Repeat([]byte{0x11}, start+size)) {
			t.Error("the worker can see which places are watched")
		}
		for i := range memory[start : start+size] {
			memory[start+i] = byte(w.number)
		}
		w.page.flag(lineDone).Store(w.number)
		must(t, w.endWatch(ctx, o, &answer{}, true))
		late := 0
		for _, at := range changed {
			memory[at]++
		}
		for _, p := range o.watched {
			if !bytes.Equal(p.bytes[:p.size], bytes.Repeat([]byte{byte(w.number)}, p.size)) {
				t.Errorf("at %d: read %x", p.at, p.bytes)
			}
			if slices.ContainsFunc(changed, func(at uint64) bool { return p.at <= at && at < p.at+uint64(p.size) }) {
				late++
			}
		}
		tree := floatsAt(3, start, size, 1, 1)
		layout, err := decodeTree(tree, w.bounds(1<<20))
		must(t, err)
		f, err := s.check(ctx, in, &answer{layout: layout, probes: o.watched}, true)
		must(t, err)
		if f.late != late {
			t.Errorf("changed %d: %+v, want %d late", changed, f, late)
		}
	}

	w.number++
	must(t, w.beginWatch(ctx, callOrder{watched: places}))
	must(t, w.endWatch(ctx, callOrder{watched: places}, &answer{}, false)) // it never came
	w.number++
	w.page.flag(lineDone).Store(w.number)
	if err := w.beginWatch(ctx, callOrder{watched: places}); !errors.Is(err, errNonsense) {
		t.Errorf("a flag that is up before the release: %v", err)
	}
}
