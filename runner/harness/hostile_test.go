package harness

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// A worker that is stopped while its input comes can have a process whose own
// timer sends it the signal to go on, and which passes it on.
func TestWorkerThatWakesItself(t *testing.T) {
	const wakes = preamble + `
def wake(pid):
    signal.signal(signal.SIGCONT, lambda *args: None)  # the timer of a signal that is ignored fires once
    libc = ctypes.CDLL(None)
    event = (ctypes.c_int * 16)()
    event[2] = signal.SIGCONT  # after the eight bytes of sigev_value; SIGEV_SIGNAL is 0
    timer = ctypes.c_void_p()
    libc.timer_create(1, event, ctypes.byref(timer))
    libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 20_000_000, 0, 20_000_000), None)
    while True:
        time.sleep(0.001)
        os.kill(pid, signal.SIGCONT)


worker = os.getpid()
if not os.fork():
    wake(worker)
`
	for text, wants := range map[string]bool{right: false, right + wakes: true} {
		p := addPayload(text, ints("n", 4, "seed", 1))
		s := mustOpen(t, "", p)
		ph := planOf(p, s)
		w, err := s.startWorker(t.Context(), &ph)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.load(t.Context(), schema.CompileLimit); err != nil {
			t.Fatal(err)
		}
		found := false
		for range 40 { // now and then it is stopped just when its timer fires, and misses that
			frozen, err := w.freeze()
			if err != nil {
				t.Fatal(err)
			}
			stood := turns(frozen)
			time.Sleep(50 * time.Millisecond) // as an input of some hundred MB comes
			found = found || w.wentOn(stood)
			thaw(frozen)
			if found {
				break
			}
		}
		if found != wants {
			t.Errorf("it went on: %v, want %v", found, wants)
		}
		if err := w.end(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// What went on counts for nothing; when most did, it is no accident.
func TestCallsThatWentOn(t *testing.T) {
	m := measuring{r: &phaseRun{s: &Session{}, echo: []time.Duration{0}}}
	woke, stood := attempt{answer: &answer{took: time.Millisecond, wentOn: true}}, attempt{answer: &answer{took: time.Millisecond}}
	for range minStrict + 1 {
		if err := errors.Join(m.count(stood, true), m.count(woke, true)); err != nil {
			t.Fatalf("%d of %d strict calls: %v", m.wentOn, m.wentOn+len(m.strict), err)
		}
	}
	if len(m.strict) != minStrict+1 || m.leftOut != 0 {
		t.Errorf("%d calls counted, %d left out", len(m.strict), m.leftOut)
	}
	if err := m.count(woke, true); !errors.Is(err, errWentOn) {
		t.Errorf("most went on: got %v", err)
	}
}

// A worker's end is no want of memory because the kernel ended somebody else on
// the machine for that meanwhile.
func TestStrangersMemory(t *testing.T) {
	const hangsUp = "import gc\n[x.socket.close() for x in gc.get_objects() if type(x).__name__ == 'Channel']\ntime.sleep(3600)"
	for _, body := range []string{hangsUp, "os.kill(os.getpid(), 9)"} {
		p := addPayload(preamble+"\n"+body, ints("n", 4, "seed", 1))
		s := mustOpen(t, "", p)
		ph := planOf(p, s)
		w, err := s.startWorker(t.Context(), &ph)
		if err != nil {
			t.Fatal(err)
		}
		if _, alone := s.parent.sandbox.OOMKills(); !alone {
			t.Skip("no control group can be made here: nobody can tell who was ended")
		}
		endStranger(t, s)
		if err := w.load(t.Context(), schema.CompileLimit); !errors.Is(err, io.EOF) {
			t.Errorf("loading it: %v", err)
		}
		if err := w.end(t.Context()); err != nil || w.state.OutOfMemory || w.state.Exit != -9 || w.swept != (body == hangsUp) {
			t.Errorf("%q: out of memory %v, swept %v, status %d, error %v", body, w.state.OutOfMemory, w.swept, w.state.Exit, err)
		}
	}
}

// endStranger has the kernel end a program for want of memory in a sandbox of its
// own.
func endStranger(t *testing.T, s *Session) {
	t.Helper()
	usual := s.o.Sandbox
	s.o.Sandbox.Limits.Memory = 200 << 20
	stranger, err := s.openSandboxed("stranger", "hog = []\nwhile True: hog.append(bytearray(b'x' * (10 << 20)))", "", false, nil, directories(filepath.Join(t.TempDir(), "stranger")))
	s.o.Sandbox = usual
	if err != nil {
		t.Fatal(err)
	}
	<-stranger.gone
	if err := stranger.close(); err != nil || !stranger.state.OutOfMemory {
		t.Fatalf("the stranger: %+v, %v", stranger.state, err)
	}
}

// Whatever a worker says on its channel or does to it is its own fault, ends the
// run at once and costs the next phase nothing.
func TestHostileWorkers(t *testing.T) {
	p := addPayload(right, ints("n", 4, "seed", 1))
	s := mustOpen(t, "", p)
	// slow is a socket that takes an hour to close: unsent data, which nobody reads.
	const more = `def nothing():
    done()
    speak(b"V" + bytes([0, 0, 6, 0, 0, 0, 0]))


def slow():
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    client.setblocking(False)
    try:
        while True:
            client.send(bytes(1 << 16))
    except BlockingIOError:
        pass
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    return client, server.accept()


def give(count):
    client, peer = slow()
    nothing()
    socket.send_fds(channel(), [b"W"], [client.fileno()] * count)
    client.close()
    time.sleep(3600)


`
	for _, test := range []struct {
		name, body, outcome, text string
		twice                     bool // there is another case after it
	}{
		{"a message of nothing", "channel().send(b''); time.sleep(3600)", schema.OutcomeForged, "malformed", false},
		{"nothing after done", "done(); channel().send(b''); time.sleep(3600)", schema.OutcomeForged, "malformed", false},
		{"a message that is too long", "speak(bytes(140_000)); time.sleep(3600)", schema.OutcomeForged, "malformed", false},
		{"too long after done", "done(); speak(b'V' + bytes(140_000)); time.sleep(3600)", schema.OutcomeForged, "malformed", false},
		{"a text with newlines for a type", `done(); speak(b'U' + struct.pack('<HH', 1, 15) + b'x\ncheck: pass\n\xff')`, schema.OutcomeWrong, "custom_kernel returned x check: pass", false},
		{"two answers", "nothing(); nothing(); time.sleep(3600)", schema.OutcomeWrong, "got tuple", false},
		{"an exception of nothing", "done(); speak(b'X')", schema.OutcomeException, "Exception", false},
		{"room for everything", "speak(b'T' + struct.pack('<BQ', 1, 1 << 63)); time.sleep(3600)", schema.OutcomeWrong, "at most", false},
		{"room for the input", "speak(b'T' + struct.pack('<BQ', 0, 1 << 13)); time.sleep(3600)", schema.OutcomeForged, "malformed", false},
		{"a descriptor that is slow to close", "give(1)", schema.OutcomeForged, "test 1: the worker's answer is malformed", true},
		{"many that are", "give(253)", schema.OutcomeForged, "test 1: the worker's answer is malformed", true},
		{"one that nobody reads", "give(1)", schema.OutcomeWrong, "got tuple", false},
		{"a dimension that costs hours to walk", "done(); speak(b'V' + struct.pack('<HBQQBBBBBBHqqqqq', 1, 0, 0, 16, 9, 1, 8, 0, 0, 2, 0, 0, 1 << 62, 0, 0, 1))", schema.OutcomeWrong, "elements in one dimension", false},
		{"hangs up", "channel().close(); time.sleep(3600)", schema.OutcomeKilled, "test 0: the process hung up on the judge, and was ended", false},
		{"kills itself", "os.kill(os.getpid(), 9)", schema.OutcomeKilled, "test 0: the process was killed by signal 9 (killed)", false},
		{"stops what it comes from", "os.kill(os.getppid(), signal.SIGSTOP); return data[0][:3]", schema.OutcomeWrong, "got 3 elements", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if strings.HasPrefix(test.body, "give(") {
				needGuards(t, s, schema.GuardNetwork) // without a network of its own it has no loopback
			}
			p := addPayload(right, p.Tests[:1]...)
			if test.twice {
				p.Tests = append(p.Tests, ints("n", 5, "seed", 2))
			}
			r := phase(t, s, schema.ModeTest, preamble+more+"def custom_kernel(data):\n    "+test.body+"\n", p)
			r.want(t, test.outcome, test.text)
			if check := r.report["check"]; check == "pass" || r.Process.ExitCode == 0 {
				t.Errorf("check %q, exit status %d", check, r.Process.ExitCode)
			}
			phase(t, s, schema.ModeTest, right, p).want(t, schema.OutcomePassed, "")
		})
	}
}
