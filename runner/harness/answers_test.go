package harness

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

// What the submissions below have in common: the honest kernel, which computes for 5 ms,
// and the parts of worker.py that they take the place of.
const answersTools = `
import ctypes
import gc
import os
import struct
import sys
import time
from array import array

main = sys.modules["__main__"]
worker = next(x for x in gc.get_objects() if type(x).__name__ == "Worker")
honest = worker.call


def slow(data):
    end = time.thread_time() + 5e-3
    while time.thread_time() < end:
        pass
    a, b = data
    return array("f", [x + y for x, y in zip(a, b)])


def custom_kernel(data):
    return slow(data)


def read(raw):
    decoder = main.Decoder(raw, lambda arena, start, n: worker.arenas[arena].part(start, n))
    return decoder, decoder.node(), decoder.table[0][2]


def leaf(code, storage, n):
    return struct.pack("<BBBBBBHqqq", 9, 0, main.TYPECODES.index(code), 0, 0, 1, storage, 0, n, 1)


def done_first(sequence, decoder, data, n, answer, ahead=False):
    "Says done, then works, and describes the output before or after that."
    worker.channel.send(b"W")
    while worker.words[0] != sequence:
        pass
    worker.words[16] = sequence
    if ahead:
        worker.channel.send(answer)
    decoder.fill()
    out = slow(data)
    worker.arenas[1].part(0, n)[:] = memoryview(out).cast("B")
    if not ahead:
        worker.channel.send(answer)
`

// A worker cannot hide work after it has called an output done: whatever it sends then is
// either timed or not part of the answer.
func TestAnswersThatTakeNoTime(t *testing.T) {
	for _, tt := range []struct {
		name, check, text string
		slow              bool
	}{
		{"more room for an answer that is there", "", `
kept = []


def custom_kernel(data):
    if sys._getframe(1).f_locals["mode"] == 2:
        return slow(data)
    if kept:
        return kept.pop()
    kept.append(slow(data))
    raise main.TooLarge(1, worker.arenas[1].size + 256)
`, false},
		{"memory that overlaps", "", `
BIG = 64 << 20


def call(mode, sequence, raw):
    if mode == 2 or 1 not in worker.arenas:
        return honest(mode, sequence, raw)
    if worker.arenas[1].size < BIG:
        worker.channel.send(b"W")
        while worker.words[0] != sequence:
            pass
        worker.words[16] = sequence
        return worker.channel.send(b"T" + struct.pack("<BQ", 1, BIG))
    decoder, data, n = read(raw)
    answer = b"V" + struct.pack("<HBQQBQQBQQ", 3, 1, 0, BIG, 1, 0, BIG - 4096, 1, 0, n) + leaf("f", 2, n // 4)
    done_first(sequence, decoder, data, n, answer, ahead=True)


worker.call = call
`, false},
		{"a number", `    return output == sum(data[0]), "another sum"`, `
def custom_kernel(data):
    worker.words[16] = worker.words[0]
    slow(data)
    return sum(data[0])
`, false},
		{"arrays that the check ignores", `    return sum(output[0]) == sum(data[0]) + sum(data[1]), "another sum"`, `
def custom_kernel(data):
    return [slow(data)]


def call(mode, sequence, raw):
    if mode != 0:
        return honest(mode, sequence, raw)
    decoder, data, n = read(raw)
    more = 1000
    answer = b"V" + struct.pack("<HBQQBQQ", 2, 1, 0, n, 1, n, 1) + struct.pack("<BI", 7, more + 1) + leaf("f", 0, n // 4) + leaf("b", 1, 1) * more
    done_first(sequence, decoder, data, n, answer)


worker.call = call
`, false},
		{"a key many times", `    return list(output) == ["c"], "other keys"`, `
def custom_kernel(data):
    return {"c": slow(data)}


def call(mode, sequence, raw):
    if mode != 0:
        return honest(mode, sequence, raw)
    decoder, data, n = read(raw)
    key, more = struct.pack("<BI", 5, 1) + b"c", 200
    answer = b"V" + struct.pack("<HBQQBQQ", 2, 1, 0, n, 1, n, 1) + struct.pack("<BI", 8, more + 1) + (key + leaf("b", 1, 1)) * more + key + leaf("f", 0, n // 4)
    done_first(sequence, decoder, data, n, answer)


worker.call = call
`, false},
		// It waits for its child in a state that no SIGSTOP ends, as for a device.
		{"a process that cannot be stopped", "", `
if os.fork() == 0:
    libc = ctypes.PyDLL(None)
    if libc.vfork() == 0:
        while True:
            time.sleep(1000)
    os._exit(0)
`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.slow {
				testenv.NeedSlow(t)
			}
			p := addPayload(answersTools+tt.text, ints("n", 64, "seed", 1))
			if tt.check != "" {
				p.Sources[1].Text = `
from array import array
import random


def generate_input(n, seed):
    draw = random.Random(seed).randrange
    return tuple(array("f", [draw(1000) for _ in range(n)]) for _ in "ab")


def check_implementation(data, output):
` + tt.check + "\n"
			}
			s := mustOpen(t, "", p)
			r := timed(t, s, schema.ModeBenchmark, p.Sources[0].Text, p)
			if r.outcome == schema.OutcomeAmbiguous {
				t.Skipf("NOT RUN: the machine is too busy to measure: %s", r.text)
			}
			if r.outcome == schema.OutcomePassed {
				if mean := figuresOf(r.Measurements[0].Samples).mean; mean < 4.5e6 {
					t.Errorf("%.3f ms for work that takes 5 ms", mean/1e6)
				}
				t.Log("the figure is that of the work")
				return
			}
			t.Log(r.outcome, r.text)
			if !strings.Contains(strings.Join([]string{schema.OutcomeWrong, schema.OutcomeForged}, " "), r.outcome) {
				t.Errorf("%s: %s", r.outcome, r.text)
			}
		})
	}
}

// TestSecondHalves: an element is looked at as a whole, also one of 16 bytes.
func TestSecondHalves(t *testing.T) {
	p := addPayload("", ints("n", 300, "seed", 1))
	p.Sources[1].Text = `
import torch


def generate_input(n, seed):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def check_implementation(data, output):
    return torch.equal(output, torch.complex(data, 2 * data)), "other numbers"
`
	if exec.Command(debianPython, "-c", "import torch").Run() != nil {
		t.Skip(debianPython + " has no torch")
	}
	o := machineOptions(t, debianPython)
	o.Payload = p
	s, err := openSession(t, o)
	must(t, err)
	outcome, words, _ := judged(t, s, schema.ModeBenchmark, answersTools+`
import torch


def custom_kernel(data):
    return torch.complex(data, 2 * data)


def call(mode, sequence, raw):
    decoder, data, n = read(raw)
    if mode != 0 or 1 not in worker.arenas or worker.arenas[1].size < 2 * n:
        return honest(mode, sequence, raw)
    out = torch.frombuffer(worker.arenas[1].part(0, 2 * n), dtype=torch.float64).view(-1, 2)
    answer = b"V" + struct.pack("<HBQQ", 1, 1, 0, 2 * n)
    answer += struct.pack("<BBBBBBHqqq", 9, 1, main.DTYPES.index("complex128"), 0, 0, 1, 0, 0, n // 8, 1)
    worker.channel.send(b"W")
    while worker.words[0] != sequence:
        pass
    decoder.fill()
    out[:, 0] = data
    worker.words[16] = sequence
    time.sleep(5e-3)
    out[:, 1] = 2 * data
    worker.channel.send(answer)


worker.call = call
`)
	if outcome != schema.OutcomeForged {
		t.Errorf("%s: %s, want %s", outcome, words, schema.OutcomeForged)
	}
}
