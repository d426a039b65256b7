package harness

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// preamble is what hostile kernels have at hand: speak writes into the channel to
// kbrun, done says that the output is there.
const preamble = `
import ctypes, os, signal, socket, struct, sys, time
from array import array


def stub():
    frame = sys._getframe()
    while "sequence" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals


def channel():
    return stub()["self"].channel.socket


def speak(raw):
    channel().send(raw)


def done():
    stub()["words"][16] = stub()["sequence"]


`

// Every way in which a kernel can leave, hang or talk nonsense is one outcome
// with words that say it, and costs the next phase nothing. Those that sleep do
// so for longer than this test may.
func TestBrokenKernels(t *testing.T) {
	p := addPayload(right, ints("n", 4, "seed", 1))
	s := mustOpen(t, "", p)
	for _, test := range []struct {
		name, body, outcome, text string
		limit                     time.Duration
	}{
		{"exit", "os._exit(0)", schema.OutcomeExited, "test 0: the submission ended its own process, with status 0", 0},
		{"exit like a failed check", "os._exit(112)", schema.OutcomeExited, "with status 112", 0},
		{"sys.exit", "sys.exit(3)", schema.OutcomeExited, "with status", 0},
		{"segfault", "ctypes.string_at(0)", schema.OutcomeKilled, "signal 11", 0},
		{"kills itself", "os.kill(os.getpid(), 9)", schema.OutcomeKilled, "signal 9", 0},
		{"hang", "time.sleep(3600)", schema.OutcomeTimeout, "passed the time limit of 1s", time.Second},
		{"hang that computes", "while True: pass", schema.OutcomeTimeout, "passed the time limit of 1s", time.Second},
		{"hang that ignores signals", "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64)); time.sleep(3600)", schema.OutcomeTimeout, "time limit", time.Second},
		{"stops itself", "os.kill(os.getpid(), signal.SIGSTOP)", schema.OutcomeTimeout, "time limit", time.Second},
		{"child keeps everything open", "os.fork() or time.sleep(3600); os._exit(0)", schema.OutcomeExited, "with status 0", 0},
		{"daemon keeps everything open", "os.fork() or (os.setsid(), os.fork() or time.sleep(3600)); os._exit(0)", schema.OutcomeExited, "with status 0", 0},
		{"exception of many lines", "raise ValueError('one\\ncheck: pass\\x0btwo')", schema.OutcomeException, "test 0: submission.py:" + strconv.Itoa(strings.Count(preamble, "\n")+2) + ": ValueError: one check: pass two", 0},
		{"no memory", "raise MemoryError", schema.OutcomeOutOfMemory, "MemoryError", 0},
		{"list of numbers", "return list(data[0])", schema.OutcomeWrong, "got list, want 4 float32", 0},
		{"lazy array", "return type('Lazy', (array,), {})('f', data[0])", schema.OutcomeWrong, "custom_kernel returned value: submission.Lazy, want tensors, or tuples, lists and dicts of them", 0},
		{"an object", "return [data[0], object()]", schema.OutcomeWrong, "custom_kernel returned [1]: object, want", 0},
		{"nothing", "return None", schema.OutcomeWrong, "got NoneType, want 4 float32", 0},
		{"rows", "return [data[0], data[1]]", schema.OutcomeWrong, "got list, want 4 float32", 0},
		{"pair", "return data", schema.OutcomeWrong, "got tuple, want 4 float32", 0},
		{"too short", "return data[0][:3]", schema.OutcomeWrong, "got 3 elements", 0},
		{"other type", "return array('d', data[0])", schema.OutcomeWrong, "of type 'd'", 0},
		{"not a number", "return array('f', [float('nan')] * 4)", schema.OutcomeWrong, "got nan", 0},
		{"garbage answer", "speak(b'check: pass\\n')", schema.OutcomeForged, "test 0: the worker's answer is malformed", 0},
		{"empty answer", "speak(b'V'); time.sleep(3600)", schema.OutcomeForged, "malformed", 0},
		{"an answer before done", "speak(b'V' + b'\\0\\0\\6\\0\\0\\0\\0'); time.sleep(3600)", schema.OutcomeForged, "malformed", 0},
		{"a tree cut short", "done(); speak(b'V\\1\\0\\1')", schema.OutcomeWrong, "custom_kernel returned a message that is cut short", 0},
		{"memory of others", "done(); speak(b'V' + struct.pack('<HBQQB', 1, 0, 0, 1 << 40, 0))", schema.OutcomeWrong, "an array outside of the memory for it", 0},
		{"impossible shape", "done(); speak(b'V' + struct.pack('<HBQQBBBBBBHqqq', 1, 0, 0, 16, 9, 0, 8, 0, 0, 1, 0, 0, 1 << 62, 1))", schema.OutcomeWrong, "does not fit into its memory", 0},
		{"half an answer", "done(); os._exit(0)", schema.OutcomeExited, "with status 0", 0},
		{"a descriptor with the answer", "done(); socket.send_fds(channel(), [b'nonsense'], [0, 1, 2])", schema.OutcomeForged, "malformed", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			p.TestTimeout = schema.Timeout{}
			if test.limit > 0 {
				p.TestTimeout = schema.Seconds(test.limit.Seconds()) // the others end by themselves, however busy the machine
			}
			text := preamble + "def custom_kernel(data):\n    " + test.body + "\n"
			r := phase(t, s, schema.ModeTest, text, p)
			if r.outcome == schema.OutcomeAmbiguous && test.outcome == schema.OutcomeTimeout {
				t.Skipf("the machine is too busy to tell a hang: %s", r.text)
			}
			r.want(t, test.outcome, test.text)
			if check := r.report["check"]; check == "pass" || r.Process.ExitCode == 0 {
				t.Errorf("check %q, exit status %d", check, r.Process.ExitCode)
			}
			p.TestTimeout = schema.Timeout{}
			phase(t, s, schema.ModeTest, right, p).want(t, schema.OutcomePassed, "")
		})
	}
}
